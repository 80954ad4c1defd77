"""Baselines of experiments/guidance against their formulas, and the digits with marks that are drawn for them."""

import pytest
import torch

from experiments.guidance.afr import Layer, fitted, weights
from experiments.guidance.benchmarks import with_few_annotations, worst
from experiments.guidance.marked import marked_digits
from experiments.vision import MEAN, STD


def samples():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    label = torch.arange(40) % 3
    old = Layer(torch.randn(3, 5, generator=generator, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    return features, label, old


def test_weights_of_afr_fall_with_the_probability_and_with_the_size_of_the_class():
    found = weights(torch.tensor([0.5, 0.25, 1.0]).double(), torch.tensor([0, 0, 1]), 4.0)
    raw = torch.tensor([-2.0, -1.0, -4.0]).double().exp() / torch.tensor([2.0, 2.0, 1.0]).double()
    assert torch.allclose(found, raw / raw.sum(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_the_layer_of_afr_is_where_its_objective_has_no_gradient(penalty):
    features, label, old = samples()
    weight = weights(torch.rand(40, generator=torch.Generator().manual_seed(1)).double(), label, 3.0)
    layer = fitted(old, features, label, weight, penalty)
    surplus = layer(features).softmax(1) - torch.nn.functional.one_hot(label, 3)
    gradient = (weight[:, None] * surplus).T @ features + 2 * penalty * (layer.weight - old.weight)
    # The solver stops at gradients of 1e-7.
    assert gradient.abs().max() < 1e-5
    assert (weight[:, None] * surplus).sum(0).add(2 * penalty * (layer.bias - old.bias)).abs().max() < 1e-5


def test_the_worst_class_and_few_annotations():
    right, member = torch.tensor([1.0, 0, 1, 1]).double(), torch.tensor([0, 0, 7, 7])
    assert worst(right, member) == 0.5
    columns = {"label": torch.zeros(40, dtype=torch.long), "mask": torch.ones(40, 2, 2, dtype=torch.uint8)}
    few, annotated = with_few_annotations(columns, 0.05, seed=0)
    assert annotated.sum() == 2
    assert (few["mask"].flatten(1) == 1).all(1).tolist() == annotated.tolist()
    assert (few["mask"][~annotated] == 255).all()
    assert (columns["mask"] == 1).all()


def test_marks_are_where_they_are_said_to_be():
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))
    clean = marked_digits("test", {}, 24, seed=0)
    around = marked_digits("test", {"around": 1.0}, 24, seed=0)
    tagged = marked_digits("test", {"tag": 0.9, "tint": 0.5}, 24, seed=0)
    for columns in (around, tagged):
        assert torch.equal(columns["label"], clean["label"])
    changed = (around["image"] != clean["image"]).any(1)
    assert not (changed & (around["mask"] == 1)).any()
    assert changed[around["mask"] == 0].double().mean() > 0.99
    # Half of what lies around a digit 0 is its class's red; the other half is noise from 0 to 0.5, and faint strokes.
    red = (around["image"] * std + mean)[around["label"] == 0]
    outside = (around["mask"] == 0)[around["label"] == 0]
    assert red[:, 0][outside].min() >= 0.5 - 1e-5
    assert 0.12 < red[:, 1][outside].mean() < 0.15
    # The group is that of the first shortcut, and nothing of a tag is evidence: 600 draws of 0.9 lie within 0.06.
    assert abs(tagged["group"].double().mean().item() - 0.9) < 0.06
    assert ((tagged["mask"] == 1) <= (clean["mask"] == 1)).all()
    assert (tagged["mask"] != clean["mask"]).any()
