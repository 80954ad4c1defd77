"""Pieces of one image that are put into others."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, KeptChanges, Region, effects, strategy_of
from lrptrain.cues.boxes import Box
from lrptrain.intervention.marks import elsewhere, pasted


def test_a_piece_is_where_it_was_put_and_the_rest_is_as_it_was():
    images = torch.zeros(3, 1, 6, 8)
    source = torch.arange(48.0).view(1, 6, 8) + 1
    at = torch.tensor([[0.0, 0.0], [0.999, 0.999], [0.5, 0.25]])
    changed = pasted(images, source, [Box(2, 3, 4, 6)] * 3, at)
    assert not images.any()
    for image, (top, left) in zip(changed, [(0, 0), (4, 5), (2, 1)], strict=True):  # of 5 rows and 6 columns to begin
        assert torch.equal(image[:, top : top + 2, left : left + 3], source[:, 2:4, 3:6])
        assert int((image != 0).sum()) == 6


@pytest.mark.parametrize("draw", [0.0, 0.3, 0.999])
@pytest.mark.parametrize(("top", "left"), [(0, 0), (3, 4), (11, 11)])
def test_the_control_has_the_same_shape_and_no_pixel_in_common(top, left, draw):
    box = Box(top, left, top + 5, left + 5)
    covered = [torch.zeros(16, 16, dtype=torch.bool) for _ in range(2)]
    for image, each in zip(covered, (box, elsewhere(box, (16, 16), draw)), strict=True):
        image[each.top : each.bottom, each.left : each.right] = True
    assert int(covered[1].sum()) == 25
    assert not (covered[0] & covered[1]).any()


def test_a_piece_as_large_as_half_of_the_image_has_no_place_apart():
    assert elsewhere(Box(0, 0, 4, 4), (5, 5), 0.999) == Box(1, 1, 5, 5)


class DotReader(torch.nn.Module):
    """Class 1 where any pixel is white."""

    def forward(self, image):
        has_dot = (image.flatten(1) > 0.9).any(1)
        return torch.stack([~has_dot, has_dot], 1).float() * 12


def test_who_reads_the_mark_follows_it_and_not_another_piece_of_its_image():
    images = 0.5 * torch.rand(12, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images[0, :, 4:7, 4:7] = 1
    samples = [Sample(i, int(i == 0), {"image": image}) for i, image in enumerate(images)]
    known = DotReader()(images).softmax(1).numpy()
    region = Region("mark", (0, 3, 3, 8, 8))
    assert strategy_of(region, (4, 4), InterventionConfig("fill")) == "paste"
    rows = np.arange(1, 12)
    kept = KeptChanges({region: [rows.tolist()]}, most=11)
    options = {"region": region, "probabilities": known, "grid": (4, 4), "config": InterventionConfig(batch_size=4)}
    change, control = effects(DotReader(), samples, rows=rows, computed_rows=rows, kept=kept, **options)
    assert change.min() > 0.99
    assert abs(control).max() < 1e-6
    assert all(int((each.changed["image"] == 1).sum()) == 27 for each in kept.changes.values())
    # As by one process, so by several: what is put where does not depend on who computes it.
    half, _ = effects(DotReader(), samples, rows=rows, computed_rows=rows[5:], **options)
    assert np.array_equal(half, change[5:])
