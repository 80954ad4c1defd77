"""Deletion, pointing game and energy against numbers of Quantus (Hedström et al. 2023) for random maps.

`golden/quantus.npz` was written by `experiments/golden/quantus_numbers.py` with Quantus 0.6.0, torch 2.15.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from lrptrain.batch.annotations import mask_to_tokens
from lrptrain.metrics import energy_pointing_game, perturbation_curve, pointing_game, relevance_rank_accuracy

GRID = (10, 10)


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parent / "golden" / "quantus.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def test_what_pixel_flipping_leaves_on_top_stays_on_top(golden):
    fractions = [step / 10 for step in range(1, 11)]
    images, weight = golden["images"].double(), golden["weight"].double()
    curve = perturbation_curve(
        lambda images: images.flatten(1) @ weight.T,
        images,
        golden["maps"].flatten(1),
        GRID,
        golden["target"],
        fractions,
    )
    # Theirs is the target's probability: of two classes, above a half is on top. At the end nothing is left, both have
    # the half, and which is on top is the tie's.
    theirs = golden["flipping"]
    assert (curve[:, :-1] == (theirs[:, :-1] > 0.5)).all()
    assert 0.2 < curve[:, :-1].mean() < 0.9
    assert (theirs[:, -1] - 0.5).abs().max() < 1e-6


def test_pointing_game_energy_and_rank_accuracy_are_theirs(golden):
    scores = golden["maps"].flatten(1)
    annotation = mask_to_tokens(golden["masks"][:, 0].to(torch.uint8), GRID)
    assert (pointing_game(scores, annotation) == golden["pointing"]).all()
    assert 0 < golden["pointing"].mean() < 1
    # They add 1e-9 to the sum that they divide by. Besides, sums of 100 numbers in another order: 100 roundings.
    bound = golden["energy"] * 1e-9 / scores.clamp(min=0).sum(1) + 1e-14
    assert ((energy_pointing_game(scores, annotation) - golden["energy"]).abs() <= 1.01 * bound).all()
    assert (relevance_rank_accuracy(scores, annotation) - golden["rank"]).abs().max() < 1e-13
