"""Baselines of experiments/guidance against their formulas, and the things with marks that are drawn for them."""

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.guidance import baselines, things
from experiments.guidance.benchmarks import with_few_annotations, worst
from experiments.guidance.report import held_to
from experiments.guidance.things import COLOURS, THINGS
from experiments.vision import MEAN, STD


def test_the_worst_class_and_few_annotations():
    right, member = torch.tensor([1.0, 0, 1, 1]).double(), torch.tensor([0, 0, 7, 7])
    assert worst(right, member) == 0.5
    columns = {"label": torch.zeros(40, dtype=torch.long), "mask": torch.ones(40, 2, 2, dtype=torch.uint8)}
    few, annotated = with_few_annotations(columns, 0.05, seed=0)
    assert annotated.sum() == 2
    assert (few["mask"].flatten(1) == 1).all(1).tolist() == annotated.tolist()
    assert (few["mask"][~annotated] == 255).all()
    assert (columns["mask"] == 1).all()


def test_things_are_where_their_masks_say_and_marks_are_of_the_class_they_say(monkeypatch):
    """White things before black grounds: what is white is evidence, and what is neither is a mark."""
    white = [Image.new("RGB", (32, 32), (255, 255, 255))] * len(THINGS) * 100
    monkeypatch.setattr(things, "photographs", lambda split: white)
    monkeypatch.setattr(things, "textures", lambda: [np.zeros((64, 64, 3), np.float32)])
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))
    clean = things.columns("test", None, seed=0)
    marked = things.columns("test", 0.9, seed=0)
    drawn = clean["image"] * std + mean
    # Normalising and its inverse round in float32: values of 1 by some 1e-7.
    assert torch.allclose(drawn.amax(1), clean["mask"].float(), rtol=0, atol=1e-5)
    assert torch.allclose(drawn.amin(1), clean["mask"].float(), rtol=0, atol=1e-5)
    assert 22**2 * 0.7 < clean["mask"].flatten(1).sum(1).min() < clean["mask"].flatten(1).sum(1).max() < 26**2 * 0.85
    changed = (marked["image"] != clean["image"]).any(1)
    # A mark is a square of 4 pixels, of a colour that is neither black nor white.
    assert (changed.flatten(1).sum(1) == 16).all()
    assert torch.equal(marked["mask"], clean["mask"] * ~changed)
    for image, where, label, group in zip(
        marked["image"], changed, marked["label"].tolist(), marked["group"].tolist(), strict=True
    ):
        rows, across = where.nonzero().T
        assert rows.max() - rows.min() == across.max() - across.min() == 3
        assert all(each.min() <= 2 or each.max() >= 29 for each in (rows, across))
        colour = (image * std + mean)[:, rows[0], across[0]]
        shown = (torch.from_numpy(COLOURS) - colour).abs().sum(1).argmin().item()
        assert (shown == label) == bool(group)
    # 600 draws of 0.9 lie within 0.06.
    assert abs(marked["group"].double().mean().item() - 0.9) < 0.06
    assert torch.equal(marked["label"].bincount(), torch.full((len(THINGS),), 100))


@pytest.mark.parametrize(
    ("differences", "said"),
    [
        ([0.0, 0.0, 0.0], "+0.000 ± 0.000: met"),
        ([-0.02, -0.02, -0.02], "-0.020 ± 0.000: missed"),
        # Student's t with 2 degrees of freedom: 4.3027 times 0.01 / sqrt(3) is 0.0248.
        ([0.0, 0.01, 0.02], "+0.010 ± 0.025: open"),
        ([0.02, 0.03, 0.04], "+0.030 ± 0.025: met"),
        ([-0.05, -0.04, -0.03], "-0.040 ± 0.025: missed"),
        ([-0.04, -0.03, -0.02], "-0.030 ± 0.025: open"),
    ],
)
def test_a_goal_is_met_by_a_whole_interval_alone(differences, said):
    assert held_to(differences, -0.01) == said


def test_who_has_annotations_chooses_by_reliance_and_never_by_groups():
    def run(factor, **measured):
        tried = {"arm": "consistency", "task": "things", "choosing": True, "factor": factor}
        return {**tried, "worst known group": factor, **measured}

    tried = [
        run(0.0, **{"accuracy": 0.90, "worst class": 0.80, "reliance, fill": 0.50, "accuracy, fill": 0.30}),
        run(0.1, **{"accuracy": 0.89, "worst class": 0.85, "reliance, fill": 0.40, "accuracy, fill": 0.50}),
        run(1.0, **{"accuracy": 0.80, "worst class": 0.70, "reliance, fill": 0.10, "accuracy, fill": 0.60}),
        run(10.0, **{"accuracy": 0.50, "worst class": 0.20, "reliance, fill": 0.01, "accuracy, fill": 0.40}),
    ]
    found = {each.rule: each.setting["factor"] for each in baselines.chosen(tried, "things")}
    assert found == {"worst class": 0.1, "least reliance": 0.1, "best filled": 1.0}
    assert baselines.chosen(tried[:3], "things") == []  # not all of them are tried
