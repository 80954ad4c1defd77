"""The swap of statistics among the samples of a batch."""

import numpy as np
import pytest
import torch

import lrptrain
from lrptrain.batch.annotations import IGNORED
from lrptrain.guidance.objective import Objective
from lrptrain.guidance.swaps import SWAPS
from lrptrain.intervention.detail import strengths_of_detail
from lrptrain.intervention.edges import along_edges
from lrptrain.intervention.shading import shading

STATISTICS = SWAPS["statistics"]


def images(count=5):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, 3, 8, 8, generator=generator) * torch.rand(count, 3, 1, 1, generator=generator)


def everything(count=5):
    return torch.ones(count, 8, 8, dtype=torch.uint8)


def test_a_sample_that_cannot_be_used_neither_takes_nor_gives():
    batch, mask = images(), everything()
    batch[2] = float("nan")
    mask[2] = IGNORED
    for seed in range(20):
        swapped, changed, _ = STATISTICS(batch, mask, generator=torch.Generator().manual_seed(seed))
        assert changed.tolist() == [True, True, False, True, True]
        assert swapped[changed].isfinite().all()
        assert not (swapped[changed] == batch[changed]).flatten(1).all(1).any()


def test_one_image_alone_is_left_as_it_is():
    swapped, changed, _ = STATISTICS(images(1), everything(1))
    assert torch.equal(swapped, images(1))
    assert not changed.any()


def test_detail_is_that_of_another_image_and_needs_no_annotation():
    batch = images()
    swapped, changed, _ = SWAPS["detail"](batch, everything(), generator=torch.Generator().manual_seed(0))
    assert changed.all()
    before, after = (strengths_of_detail(each) for each in (batch, swapped))
    assert not np.isclose(before, after, rtol=1e-3).any()
    assert not Objective({"consistency": 1.0}, swap="detail").needs_annotation


def test_light_falls_as_in_another_image_and_needs_no_annotation():
    batch = images()
    swapped, changed, _ = SWAPS["shading"](batch, everything(), generator=torch.Generator().manual_seed(0))
    assert changed.all()
    # Their pixels are brought back to what all images have, which changes the light a little.
    distances = torch.cdist(shading(swapped).flatten(1), shading(batch).flatten(1))
    donors = distances.argmin(1)
    assert (donors != torch.arange(5)).all()
    assert donors.unique().numel() == 5
    assert not Objective({"consistency": 1.0}, swap="shading").needs_annotation


def test_edges_are_those_of_another_image_and_need_no_annotation():
    batch = images()
    swapped, changed, _ = SWAPS["edges"](batch, everything(), generator=torch.Generator().manual_seed(0))
    assert changed.all()
    edges = along_edges((8, 8))
    assert torch.equal(swapped[:, :, ~edges], batch[:, :, ~edges])
    donors = torch.cdist(swapped[:, :, edges].flatten(1), batch[:, :, edges].flatten(1)).argmin(1)
    assert torch.equal(swapped[:, :, edges], batch[donors][:, :, edges])
    assert sorted(donors.tolist()) == list(range(5))
    assert (donors != torch.arange(5)).all()
    assert not Objective({"consistency": 1.0}, swap="edges").needs_annotation


@pytest.mark.parametrize("margin", [None, 1])
def test_both_swaps_give_surroundings_of_one_and_colours_of_another(margin):
    batch, mask = images(), torch.zeros(5, 8, 8, dtype=torch.uint8)
    mask[:, 2:5, 3:6] = 1
    mask[4] = IGNORED  # it takes no part
    generator = torch.Generator().manual_seed(3)
    surrounded, elsewhere, _ = SWAPS["outside"](batch, mask, margin, generator)
    recoloured, changed, _ = STATISTICS(batch, mask, margin, generator)
    both, of_both, _ = SWAPS["outside+statistics"](batch, mask, margin, torch.Generator().manual_seed(3))
    assert of_both.tolist() == (elsewhere | changed).tolist() == [True] * 4 + [False]
    kept = torch.zeros(8, 8, dtype=torch.bool)
    kept[2 - (margin or 0) : 5 + (margin or 0), 3 - (margin or 0) : 6 + (margin or 0)] = True
    assert torch.equal(both[:4, :, kept], recoloured[:4, :, kept])
    assert torch.equal(both[:4, :, ~kept], surrounded[:4, :, ~kept])
    assert torch.equal(both[4], batch[4])
    assert not (recoloured[:4, :, kept] == batch[:4, :, kept]).flatten(1).all(1).any()


def test_texts_have_no_statistics_to_swap():
    with pytest.raises(ValueError, match="a swap of statistics, detail, shading or edges is one of images"):
        STATISTICS(torch.ones(3, 7, dtype=torch.long), torch.ones(3, 7))


@pytest.mark.parametrize(
    ("weights", "swap", "needed"),
    [
        ({"consistency": 1.0}, "outside", True),
        ({"consistency": 1.0}, "statistics", False),
        ({"consistency": 1.0, "energy": 1.0}, "statistics", True),
        ({}, "statistics", False),
        ({}, "outside+statistics", True),
    ],
)
def test_what_needs_an_annotation(weights, swap, needed):
    assert Objective(weights, swapped_share=None if weights else 1.0, swap=swap).needs_annotation is needed


def test_a_loss_that_swaps_nothing_has_no_kind_of_swap():
    for swap in ("statistics", "outside+statistics"):
        with pytest.raises(ValueError, match="and energy swaps nothing: leave it out") as refused:
            lrptrain.Guidance("energy", swap=swap)
        assert "\n" not in str(refused.value)
    lrptrain.Guidance("swap+energy", swap="statistics")
    lrptrain.Guidance("consistency+energy", swap="statistics")
