"""All repairs beside each other are those that `repair` makes, measured alike."""

import pytest
import torch

import lrptrain
from lrptrain.cli import main
from tests.repairing.test_repair import BothPlaces, Module, corner_groups, images, loader


def test_each_is_what_repair_makes():
    model = BothPlaces()
    data = corner_groups(images(200, 0.9))
    comparison = lrptrain.compare_repairs(model, loader(data), max_samples=200)
    assert list(comparison.repairs) == [
        "retrain, surroundings",
        "erase, surroundings",
        "retrain, groups",
        "erase, groups",
    ]
    for name, repaired in comparison.repairs.items():
        how, _, balance = name.partition(", ")
        assert (repaired.how, repaired.balance) == (how, balance)
        alone = lrptrain.repair(model, loader(data), max_samples=200, how=repaired.how, balance=repaired.balance)
        assert torch.equal(repaired.weight, alone.weight)
        assert alone.after.items() <= repaired.after.items()
        assert list(repaired.after) == [
            "as they are",
            "worst class",
            "with the same class's surroundings",
            "with another class's surroundings",
            "worst group",
        ]
    right = comparison["erase, groups"].after
    assert right["worst class"] <= right["as they are"]
    with pytest.raises(KeyError, match="no repair 'erase' was compared: there are 'retrain, surroundings'"):
        comparison["erase"]
    comparison["erase, groups"].apply(model)
    assert torch.equal(model.head.weight, comparison["erase, groups"].weight)


def test_the_table_holds_what_was_measured_in_80_columns():
    comparison = lrptrain.compare_repairs(BothPlaces(), loader(corner_groups(images(200, 0.9))), max_samples=200)
    lines = str(comparison).splitlines()
    assert max(map(len, lines)) <= 80
    before = comparison["erase, groups"].before
    (trained,) = (line for line in lines if line.startswith("as trained"))
    as_they_are, worst, same, other, group = before.values()
    assert trained.split()[2::2] == [f"{100 * value:.1f}" for value in (as_they_are, worst, group, same - other)]
    assert "Lost: accuracy with the same class's less accuracy with another class's." in lines
    assert sum(line.startswith(("retrain,", "erase,")) for line in lines) == 4


def test_what_the_samples_lack_is_left_out_and_said():
    data = {name: x for name, x in images(80, 0.9).items() if name != "group"}
    comparison = lrptrain.compare_repairs(BothPlaces(), loader(data), max_samples=80)
    assert list(comparison.repairs) == ["retrain, surroundings", "erase, surroundings"]
    assert "Not compared: groups (fewer than 20 samples have a `group`)." in str(comparison)
    neither = {name: x for name, x in data.items() if name != "mask"}
    with pytest.raises(
        ValueError, match=r"have an annotation .* and fewer than 20 samples have a `group`; name a balance"
    ):
        lrptrain.compare_repairs(BothPlaces(), loader(neither))
    with pytest.raises(ValueError, match="balances are some of"):
        lrptrain.compare_repairs(BothPlaces(), loader(data), balances=["masks"])  # type: ignore[list-item]
    named = lrptrain.compare_repairs(BothPlaces(), loader(neither), max_samples=80, balances=["edges"])
    assert list(named.repairs) == ["retrain, edges", "erase, edges"]


def test_what_leaves_nothing_of_the_features_is_left_out_and_the_others_are_compared():
    # Two features, and groups of class and corner: those move both.
    comparison = lrptrain.compare_repairs(BothPlaces(), loader(images(200, 0.9)), max_samples=200)
    assert list(comparison.repairs) == ["retrain, surroundings", "erase, surroundings", "retrain, groups"]
    assert "nothing would be left" in comparison.not_compared["erase, groups"]
    assert max(map(len, str(comparison).splitlines())) <= 80
    alike = {**images(80, 0.9), "group": torch.zeros(80, dtype=torch.long)}
    assert lrptrain.compare_repairs(BothPlaces(), loader(alike)).not_compared == {
        "groups": "all samples are of one group"
    }


def compared_loader() -> object:
    return loader(images(80, 1.0))


@pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*does not have many workers", "ignore:.*num_workers")
def test_the_command_prints_and_writes_nothing(tmp_path, capsys, monkeypatch):
    import pytorch_lightning as pl

    monkeypatch.chdir(tmp_path)
    trainer = pl.Trainer(max_steps=2, accelerator="cpu", barebones=True)
    trainer.fit(Module(), compared_loader())
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    main(
        [
            *("repair", "model.ckpt", f"--module={Module.__module__}.Module"),
            *(f"--data={__name__}.compared_loader", "--compare", "--device=cpu", "--max-samples=80"),
        ]
    )
    assert "retrain, surroundings" in capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["model.ckpt"]
