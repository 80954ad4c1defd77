import json
from pathlib import Path

import pytest
import torch

import lrptrain
from lrptrain.auditing import audit as module
from lrptrain.cli import main
from lrptrain.cli.audit import audit_checkpoint
from lrptrain.cli.checkpoint import read_checkpoint
from lrptrain.cli.datasets import training_samples
from lrptrain.cli.modules import ModuleSource
from lrptrain.cli.retrain import Retrain
from lrptrain.data import PlantedDigits
from lrptrain.models import ImageClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*logging interval:UserWarning"),
]


def run(checkpoint: str, folder: Path, *options: str) -> dict:
    main(["audit", checkpoint, f"--output={folder}", "--device=cpu", *options])
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


QUICK = {"search_steps": 4, "frozen_steps": 4, "adversary_steps": 2, "seeds": 1, "stages": 1, "shuffles": 4}
OPTIONS = (
    "--methods=raw_attention, random,random",
    "--max-samples=10",
    *(f"--settings.{name}={value}" for name, value in QUICK.items()),
)


def test_a_checkpoint_is_audited_and_taken_up_again(digits, tmp_path, capsys):
    results = run(digits, tmp_path, *OPTIONS, "--retrain_epochs=1", "--budget=600")
    assert results["methods"] == ["raw_attention", "random"]
    assert results["about"]["samples"] == 10
    units = {(unit["test"], unit["of"]): unit for unit in results["units"]}
    assert not [unit["problem"] for unit in units.values() if unit["problem"]]
    assert ("seeds", "1") in units
    said, saved = capsys.readouterr().out, (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert "perturbation of raw_attention" in said
    assert saved in said
    assert "random: faithful on this model: no" in saved or "random: faithful on this model: not judged" in saved
    again = run(digits, tmp_path, *OPTIONS, "--retrain_epochs=1", "--budget=1e-6")
    assert {(unit["test"], unit["of"]): unit for unit in again["units"]} == units


def test_what_is_done_is_kept_when_it_is_stopped(digits, tmp_path, monkeypatch, capsys):
    def stops(unit):
        if unit.test == "leave_one_out" and not unit.problem:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "_print_unit", stops)
    with pytest.raises(SystemExit) as ended:
        run(digits, tmp_path, *OPTIONS)
    assert ended.value.code == 130
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert "stopped" in capsys.readouterr().out
    done = [unit["test"] for unit in results["units"] if not unit["problem"]]
    assert done == ["perturbation", "leave_one_out"]
    assert results["verdicts"][0]["faithful"] != "yes"


def test_another_seed_trains_another_model(digits):
    source = ModuleSource("lrptrain.models.ImageClassifier")
    retrain = Retrain(source, read_checkpoint(digits), PlantedDigits(train_size=64, batch_size=32), 1)
    state = torch.get_rng_state()
    one, again, other = (retrain(seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(one, ImageClassifier)
    assert not one.training
    weights = [next(iter(net.parameters())) for net in (one, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert retrain.seconds() > 0


def test_training_samples_are_fixed_by_the_seed():
    first, again, other = (training_samples(PlantedDigits(train_size=64), 40, seed) for seed in (0, 0, 1))
    labels = [[sample.label for sample in samples] for samples in (first, again, other)]
    assert len(first) == 40
    assert labels[0] == labels[1] != labels[2]
    assert min(labels[0]) >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "rolout"}, "rollout"),
        ({"budget": 0}, "budget must be a positive"),
        ({"retrain_epochs": -1}, "retrain_epochs must be 0 or more"),
        ({"max_samples": 0}, "max_samples"),
        ({"tests": "perturbations"}, "unknown tests"),
    ],
)
def test_wrong_arguments_are_told(digits, options, message):
    with pytest.raises(ValueError, match=message):
        audit_checkpoint(digits, **options)
    with pytest.raises(lrptrain.UnsupportedMethodError):
        audit_checkpoint(digits, methods="magic")
