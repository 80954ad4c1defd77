"""Models beside each other are measured as a repair measures the one that it mends."""

import numpy as np
import pytest
import torch

import lrptrain
from lrptrain.repairing.trainings import _above, _Answers
from tests.repairing.test_repair import BothPlaces, TwoPlaces, WithoutForward, corner_groups, images, loader


def test_accuracies_are_those_that_a_repair_begins_with():
    data = corner_groups(images(200, 0.9))
    models = {"corner": TwoPlaces(), "centre": TwoPlaces(), "one logit": TwoPlaces(1)}
    for model in models.values():
        with torch.no_grad():
            model.head.bias.zero_()
    with torch.no_grad():
        models["centre"].head.weight[-1] = torch.tensor([5.0, 0.0])
    comparison = lrptrain.compare_models(models, loader(data), max_samples=200)
    assert (comparison.samples, comparison.not_compared) == (200, {})
    for name, model in models.items():
        # The repair reads what the last layer is given, and computes the answers in numpy.
        before = lrptrain.repair(model, loader(data), max_samples=200, balance="groups").before
        assert before.keys() == {"as they are", "worst group"}
        assert {each: comparison.accuracies[name][each] for each in before} == pytest.approx(before, abs=1e-12)
        logits = model(data["image"])
        predicted = logits.argmax(1) if logits.shape[1] == 2 else (logits[:, 0] > 0).long()
        right = predicted == data["label"]
        worst = min(right[data["label"] == each].double().mean().item() for each in (0, 1))
        assert comparison.accuracies[name]["worst class"] == pytest.approx(worst, abs=1e-12)
    assert comparison.accuracies["corner"]["worst group"] == 0.0
    assert comparison.accuracies["centre"]["with other surroundings"] == 1.0


def test_differences_have_intervals_over_pairs():
    """Of two models, both are right in some samples and one in others: the discordant ones alone make the spread."""
    right = np.repeat([1.0, 1.0, 0.0], [100, 20, 80])
    as_first = np.repeat([1.0, 0.0, 0.0], [100, 20, 80])
    low, high = _above({"x": _Answers(right)}, {"x": _Answers(as_first)}, 0)["x"]
    # 20 of 200: a mean of 0.1, and a deviation of sqrt(0.1 * 0.9 / 200), 1.96 times which to either side. The
    # percentiles of 2000 draws have standard errors of 0.0013 or so, and lie on multiples of 0.005.
    spread = 1.96 * np.sqrt(0.1 * 0.9 / 200)
    assert (low, high) == pytest.approx((0.1 - spread, 0.1 + spread), abs=0.009)
    # Where both are equal, nothing is left of the spread that each has by itself.
    assert _above({"x": _Answers(right)}, {"x": _Answers(right)}, 0)["x"] == (0, 0)


def test_the_worst_part_is_that_of_every_draw():
    part = np.repeat([3, 7], [150, 50])
    right = np.concatenate([np.ones(150), np.zeros(20), np.ones(30)])
    answers = _Answers(right, part)
    assert answers.accuracy() == pytest.approx(0.6)
    low, high = _above({"x": answers}, {"x": _Answers(np.zeros(200), part)}, 0)["x"]
    spread = 1.96 * np.sqrt(0.6 * 0.4 / 50)
    assert (low, high) == pytest.approx((0.6 - spread, 0.6 + spread), abs=0.03)
    # A draw without a sample of a part says nothing of it.
    counts = np.concatenate([np.ones((1, 150)), np.zeros((1, 50))], 1)
    assert answers.accuracies(counts).tolist() == [1]


def test_the_table_holds_what_was_measured_in_80_columns():
    models = {"plain": WithoutForward(), "mended": BothPlaces()}
    comparison = lrptrain.compare_models(models, loader(images(80, 0.9)))
    lines = str(comparison).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Accuracies of 2 models on the same 80 samples."
    for name, values in comparison.accuracies.items():
        row = next(line for line in lines if line.startswith(name))
        assert row.split()[1::2] == [f"{100 * value:.1f}" for value in values.values()]
    assert lines[-3] == "In points above 'plain', with 95 % intervals over samples:"
    told = [f"{100 * low:+.0f} to {100 * high:+.0f}" for low, high in comparison.above_first["mended"].values()]
    assert " ".join(lines[-1].split()) == " ".join(["mended", *told])
    alone = lrptrain.compare_models({"plain": models["plain"]}, loader(images(80, 0.9)))
    assert "In points" not in str(alone)
    assert models["plain"].training


def test_labels_alone_are_enough_and_what_is_lacking_is_said():
    data = {name: x for name, x in images(80, 0.9).items() if name in ("image", "label")}
    comparison = lrptrain.compare_models({"plain": TwoPlaces()}, loader(data))
    assert list(comparison.accuracies["plain"]) == ["as they are", "worst class"]
    assert "Not compared: surroundings (fewer than 20 samples have an annotation" in str(comparison)
    coloured = lrptrain.compare_models({"plain": TwoPlaces()}, loader(data), balances=["colour"])
    assert list(coloured.accuracies["plain"]) == ["as they are", "worst class", "with other colour"]


@pytest.mark.parametrize(
    ("models", "options", "samples", "message"),
    [
        ({"plain": TwoPlaces()}, {"balances": ["edges"]}, 80, "balance='edges' is now balance='border'"),
        ({}, {}, 80, "models by their names"),
        ({"plain": TwoPlaces()}, {"balances": []}, 80, "balances are some of"),
        ({"plain": TwoPlaces()}, {}, 19, "19 samples have a label: models are compared on at least 20"),
        ({"plain": TwoPlaces()}, {"task": lrptrain.Regression(0.0, 1.0)}, 80, "this task is a regression"),
    ],
)
def test_what_cannot_be_compared_is_refused(models, options, samples, message):
    with pytest.raises(ValueError, match=message):
        lrptrain.compare_models(models, loader(images(samples, 0.9)), **options)
