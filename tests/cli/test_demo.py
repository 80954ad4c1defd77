import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from examples import OPEN, finding, keep_wandb_offline
from PIL import Image

from lrptrain.cli.demo import demo
from lrptrain.cli.demo_runs import VIT, Lines, Outcome, compare_outcomes
from lrptrain.relevance.default import DEFAULT_METHODS

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]


def event(epoch: int, share: float, flagged: bool) -> dict:
    scalars = {"relevance/label/energy_pointing_game": share, "relevance/chance": 0.3, "relevance/seconds": 3.0}
    findings = [OPEN.to_dict(), *([finding().to_dict()] if flagged else [])]
    return {"epoch": epoch, "step": epoch, "scalars": scalars, "findings": findings}


def outcome(*events: dict, clean: float = 0.1) -> Outcome:
    return Outcome(0.99, clean, 60.0, list(events), [], Path())


FLAGGED = outcome(event(0, 0.3, False), event(1, 0.15, True), event(2, 0.12, True))
FINE = outcome(event(0, 0.6, False), clean=0.873)


def test_the_report_sets_both_runs_side_by_side():
    text = compare_outcomes(FLAGGED, FINE)
    assert "same digits     10.0%    87.3%" in text
    assert "relevance on the digit                      12%      60%   (area: 30%)" in text
    assert "plain: the monitor flagged the model in epoch 1" in text
    assert "SHORTCUT: the model relies on the top left corner." in text
    assert "the monitor's share of that                 15%       5%" in text
    assert "guided: the monitor found no shortcut." in text


def test_the_report_says_when_a_flag_was_taken_back():
    back = outcome(event(0, 0.1, True), event(3, 0.6, False))
    assert "guided: the monitor flagged the model in epoch 0, and took the flag back in epoch 3" in compare_outcomes(
        FLAGGED, back
    )


def test_in_a_file_a_line_is_printed_after_an_epoch_once_so_many_seconds_went_by(monkeypatch, capsys):
    seconds = iter([0.0, 3.9, 4.0, 5.0, 8.0])
    monkeypatch.setattr("lrptrain.cli.demo_runs.time.monotonic", lambda: next(seconds))
    lines = Lines(next(seconds))
    for epoch in range(4):
        metrics = {"val/accuracy": 0.5}
        state: Any = SimpleNamespace(current_epoch=epoch, max_epochs=7, callback_metrics=metrics, sanity_checking=False)
        lines.on_validation_end(state, cast(Any, None))
    assert capsys.readouterr().out.splitlines() == [
        "  epoch 2 of 7: 50% correct with the tag, 4 s",
        "  epoch 4 of 7: 50% correct with the tag, 8 s",
    ]


def test_a_small_demo_writes_all_it_promises(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    keep_wandb_offline(monkeypatch, tmp_path)
    folder = tmp_path / "demo"
    monkeypatch.setitem(VIT, "depth", 1)  # which learns the tag soonest
    demo(str(folder), epochs=2, max_samples=60, images=1920)
    said = capsys.readouterr().out
    assert "accuracy without the tag" in said
    assert "plain: the monitor flagged the model in epoch" in said
    before, _ = said.split("accuracy with the tag")
    assert len(before.splitlines()) <= 25
    with Image.open(folder / "overlays.png") as picture:
        assert picture.size[0] > 300
    for name in ("plain", "guided"):
        assert (folder / name / "model.ckpt").exists()
        assert list((folder / name / "wandb").glob("offline-run-*"))
        (run,) = (folder / name / "relevance").iterdir()
        assert json.loads((run / "run.json").read_text())["method"] == DEFAULT_METHODS[0]
