"""What several tests start from: a finding, an evaluation, and W&B without a network."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrptrain.findings import Evidence, Finding, Scope
from lrptrain.loggers import EpochRecord, Highlight, Picture


def finding(**changes: Any) -> Finding:
    """A finding on class dog, changed."""
    base = Finding(
        kind="focus_outside_annotation",
        title="The relevance lies outside the annotation",
        scope=Scope("class", "dog"),
        target="label",
        relevance=Evidence(0.12, (0.09, 0.15), 0.31, 0.001, 24),
        confidence=0.95,
        bound=0.5,
        worst_samples=(17, 4),
        epoch=0,
        step=7,
        first_epoch=0,
    )
    return replace(base, **changes)


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
