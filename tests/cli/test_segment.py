"""`lrptrain segment` on a classifier and a datamodule of the user; all stages: tests/segmentation/test_pipeline.py."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import own_vision
import pytest
import torch

from lrptrain.cli import main

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
]
QUICK = ("--training.max_epochs=1", "--masks.method=rollout", "--masks.scales=[1]")


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a verb writes by default goes here."""
    monkeypatch.chdir(tmp_path)


def of_masks(masks: str) -> tuple[Any, Any]:
    return own_vision.untrained()[0], own_vision.other_package(masks)


plain, regions = partial(of_masks, "plain"), partial(of_masks, "regions")


def headless() -> dict[str, Any]:
    torch.manual_seed(0)
    return {"classifier": own_vision.Headless(16), "datamodule": own_vision.other_package("plain"), "model": "backbone"}


def results(folder: str) -> dict[str, Any]:
    return json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))


def test_a_function_of_classifier_and_datamodule(capsys):
    main(["segment", f"{__name__}:plain", *QUICK])
    said = capsys.readouterr().out
    assert "where none has a mask, it is 0.3 (--masks.threshold sets it)" in said
    assert "--masks.mean and --masks.std say how images were normalised" in said
    assert "| mean IoU | seeds | refined | pseudo-masks | segmenter |" in said
    assert said.endswith("segmentation/results.json\n")
    first = results("segmentation")
    assert first.keys() == {"train", "val", "segmenter"}  # without a test set
    assert first["val"]["scored"] == 24
    main(["segment", f"{__name__}:regions", *QUICK, "--output=regions"])
    second = results("regions")
    for split in ("train", "val"):
        assert second[split]["masks"]["mean_iou"] == first[split]["masks"]["mean_iou"]


def test_a_dict_names_the_part_that_gives_logits(capsys):
    normalised = (f"--masks.mean={list(own_vision.MEAN)}", f"--masks.std={list(own_vision.STD)}")
    main(["segment", f"{__name__}:headless", *QUICK, *normalised])
    assert "--masks.mean" not in capsys.readouterr().out
    assert results("segmentation")["train"]["images"] == 48


def test_what_is_wrong_is_one_line():
    for typed, says in (
        (["own_vision:untrained"], "masks are made for every split: return (classifier, datamodule), not a loader"),
        ([f"{__name__}:regions", "--masks.masks=classes"], "must be [batch, height, width] of the classes"),
        ([], "a function that returns (classifier, datamodule), as my_module:function, or else --config FILE"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["segment", *typed, *QUICK])
        assert says in str(ended.value.code)
        assert "\n" not in str(ended.value.code)
