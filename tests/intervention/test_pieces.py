"""Where a mark lies in images that it was not seen in."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lrptrain.findings.detectors.marks import find_marks, picture_of
from lrptrain.intervention.pieces import inside_marks, places_of

GRID = (6, 6)
SIDE = 5
COLOUR = torch.tensor([1.0, 0.0, 0.5])[:, None, None]


def noise(count, seed):
    return torch.rand(count, 3, 24, 24, generator=torch.Generator().manual_seed(seed))


def marked(count, seed):
    """Noise with a dot at random places; where it is."""
    images = noise(count, seed)
    corners = np.random.default_rng(seed).integers(0, 24 - SIDE, (count, 2))
    for image, (top, left) in zip(images, corners, strict=True):
        image[:, top : top + SIDE, left : left + SIDE] = COLOUR
    return images, corners


@pytest.fixture(scope="module")
def picture():
    images, corners = marked(20, 0)
    images = torch.cat([images, noise(20, 1)])
    labels = np.repeat([1, 0], 20)
    shares = torch.full((40, 36), 1e-3)
    for row, (top, left) in enumerate(corners):
        shares[row, (top + 2) // 4 * 6 + (left + 2) // 4] = 1
    (mark,) = find_marks(images, shares / shares.sum(1, keepdim=True), GRID, labels)
    return picture_of(mark, torch.cat([images[mark.image][None], images]), GRID)


def test_a_mark_is_found_where_it_lies_and_nowhere_else(picture):
    images, corners = marked(30, 2)
    for box, (top, left) in zip(places_of(images, picture), corners, strict=True):
        assert box is not None
        # Its rim is of a pixel or two, where the image goes on so far.
        assert abs(box.top - top) <= 2
        assert abs(box.left - left) <= 2
        assert abs(box.bottom - top - SIDE) <= 2
        assert abs(box.right - left - SIDE) <= 2
    assert places_of(noise(30, 3), picture) == [None] * 30


def test_its_pixels_are_those_of_its_box_whatever_the_size_of_the_images(picture):
    images, corners = marked(10, 4)
    inside = inside_marks(images, picture)
    for pixels, box in zip(inside, places_of(images, picture), strict=True):
        expected = torch.zeros(24, 24, dtype=torch.bool)
        assert box is not None
        expected[box.top : box.bottom, box.left : box.right] = True
        assert torch.equal(pixels, expected)
    larger = inside_marks(F.interpolate(images, (48, 48), mode="nearest-exact"), picture)
    assert larger.shape == (10, 48, 48)
    for pixels, (top, left) in zip(larger, corners, strict=True):
        covered = pixels[2 * top : 2 * (top + SIDE), 2 * left : 2 * (left + SIDE)].float().mean()
        assert covered > 0.7
    assert not inside_marks(noise(5, 5), picture).any()
