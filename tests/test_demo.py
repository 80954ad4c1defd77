import json
from pathlib import Path

import pytest
from examples import keep_wandb_offline
from PIL import Image

from lrptrain.demo import demo, report

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]


def event(epoch: int, share: float, flagged: bool) -> dict:
    scalars = {"relevance/label/energy_pointing_game": share, "relevance/chance": 0.3, "relevance/accuracy": 0.9}
    scalars |= {"relevance/cost_share": 0.1}
    finding = {
        "kind": "focus_outside_annotation",
        "scope": "overall",
        "target": "label",
        "effect": share,
        "chance": 0.3,
    }
    finding |= {
        "interval": [0.1, 0.2],
        "confidence": 0.95,
        "bound": 0.3,
        "p_value": 0.01,
        "samples": 9,
        "state": "suspected",
    }
    finding |= {"worst_samples": [1], "epoch": epoch, "step": 1, "first_epoch": 1}
    return {"epoch": epoch, "step": epoch, "scalars": scalars, "findings": [finding] if flagged else []}


def test_the_report_says_when_it_was_flagged():
    text = report([event(0, 0.3, False), event(1, 0.15, True), event(2, 0.12, True)], 0.99, 0.1, 60.0)
    assert "99.0%" in text
    assert "10.0%" in text
    assert "epoch 1" in text
    assert "! overall: 12 %" in text


def test_the_report_says_when_nothing_was():
    assert "nothing" in report([event(0, 0.6, False)], 0.99, 0.9, 60.0)


def test_a_small_demo_writes_all_it_promises(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    keep_wandb_offline(monkeypatch, tmp_path)
    demo(str(tmp_path / "demo"), epochs=2, samples=100, images=1920)
    said = capsys.readouterr().out
    assert "accuracy without the tag" in said
    assert "The monitor flagged the model in epoch" in said
    with Image.open(tmp_path / "demo" / "overlays.png") as picture:
        assert picture.size[0] > 300
    assert (tmp_path / "demo" / "model.ckpt").exists()
    assert list((tmp_path / "demo" / "wandb").glob("offline-run-*"))
    (run,) = (tmp_path / "demo" / "relevance").iterdir()
    assert json.loads((run / "run.json").read_text())["method"] == "transformer_attribution"
