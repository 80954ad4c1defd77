"""What several tests start from: an explained sample, a finding, an evaluation, and W&B without a network."""

import json
import math
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.findings import Finding
from lrptrain.loggers import EpochRecord, Highlight, Picture
from lrptrain.monitor.evaluation import ExplainedSample


def explained(sample: Any = 0, probabilities: Any = (0.75, 0.25), **changes: Any) -> ExplainedSample:
    """A sample with its prediction and its map, changed; a number is that of a sample of the first class."""
    given = sample if isinstance(sample, Sample) else Sample(sample, 0, {})
    rows = np.asarray(probabilities)
    base = {"predicted": int(rows.argmax()), "maps": {"label": torch.ones(4)}, "grid": (2, 2), "num_logits": len(rows)}
    return ExplainedSample(given, probabilities=rows, **{**base, "chance": 0.5, "values": {}, **changes})


@dataclass(frozen=True)
class Everything(Cue):
    """All that a model is given, as what nobody may read: any model that gives several answers does."""

    kind = "everything"
    name: str = "everything"
    role: Role = "shortcut"

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`."""
        given = {"image", "input_ids", "attention_mask"} & {*batch}
        return {**batch, **{name: sources[name] for name in given}}


def finding(**changes: Any) -> Finding:
    """A fault that the model relies on, changed."""
    base = Finding(
        name="the top left corner",
        kind="place",
        role="shortcut",
        verdict="relies",
        effect=0.4,
        interval=(0.3, 0.5),
        samples=24,
        step=7,
        history=(0.4,),
        verdicts=("relies",),
        epochs=(0,),
        within="everything outside the annotation",
        share=0.8,
        relevance=0.5,
        area=0.0625,
        worst_samples=(17, 4),
        medium="image",
        plain={"where": "outside"},
        fix='RelevanceGuidance("swap")',
    )
    return replace(base, **changes)


OPEN = finding(
    name="the colours of the image", kind="colour", role="unreviewed", within="", share=None, relevance=None,
    fix='RelevanceGuidance("swap", swap=monitor["the colours of the image"])',
)  # fmt: skip
EVIDENCE = finding(name="the annotated object", kind="surroundings", role="annotation")
INCONCLUSIVE = finding(
    name="the border", verdict="inconclusive", effect=0.1, interval=(0.0, 0.2), verdicts=("inconclusive",)
)
ENDED = finding(
    name="the light of the image", kind="light", verdict="does not rely", effect=0.0, interval=(-0.01, 0.01), epoch=3,
    history=(0.4, 0.3, 0.1, 0.0), verdicts=("relies", "relies", "inconclusive", "does not rely"), epochs=(0, 1, 2, 3),
)  # fmt: skip
RECORDED = finding(worst_samples=(17, "a/b"), epoch=3, step=31, first_epoch=2)


def picture(sample_id: int | str, value: int = 7) -> Picture:
    """A picture of one grey."""
    return Picture(sample_id, "caption", np.full((12, 10, 3), value, np.uint8))


def record(epoch: int = 3, **changes: Any) -> EpochRecord:
    """An evaluation with something of every kind, changed."""
    base = EpochRecord(
        epoch=epoch,
        step=10 * epoch + 1,
        scalars={"relevance/epg": 0.25, "relevance/rank": math.nan},
        samples={"sample_id": ["17", "a/b"], "label": [0, 1], "epg": [0.5, math.nan]},
        pictures=[picture(17), picture("a/b")],
        texts=[Highlight("t", "one <b>", "<span>good</span>", "good")],
        findings=[RECORDED],
        new_findings=[RECORDED],
        class_names=["cat", "dog"],
        weights=(1, 11),
    )
    return replace(base, **changes)


def keep_wandb_offline(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let W&B write to `folder` alone, whoever is logged in."""
    patch.setenv("WANDB_MODE", "offline")
    patch.setenv("WANDB_SILENT", "true")
    for kind in ("DATA", "CACHE", "CONFIG"):
        patch.setenv(f"WANDB_{kind}_DIR", str(folder / kind.lower()))


def wandb_records(run: Path) -> list[dict[str, Any]]:
    """What W&B's own reader finds in the folder of an offline run."""
    command = [str(Path(sys.executable).with_name("wandb")), "leet", "inspect", "--json", str(run)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


def assert_same(one: Any, other: Any, path: str = "") -> None:
    """Nested equality, to the bit."""
    assert type(one) is type(other), path
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, path
        assert torch.equal(one, other), path
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_same(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for i, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{path}/{i}")
    else:
        assert np.array_equal(one, other), path


def board_of(folder: Path | str) -> Any:
    """What TensorBoard reads in a folder, all of it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0}).Reload()
