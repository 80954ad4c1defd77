"""Mean and covariance of the colours are the source's afterwards."""

import pytest
import torch

from lrptrain.cues.visual.colour import Colour
from tests.cues.looked_at import SIZES, images, transplanted


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_mean_and_covariance_of_the_colours_become_those_of_the_source(size, channels):
    sources = images(1, size, channels)
    changed = transplanted(Colour, images(0, size, channels), sources)
    for one, other in zip(changed.flatten(2), sources.flatten(2), strict=True):
        torch.testing.assert_close(one.mean(1), other.mean(1))
        torch.testing.assert_close(torch.cov(one), torch.cov(other))


def test_the_map_of_colours_is_the_optimal_one():
    """Of one channel it is x -> (x - m) s'/s + m'; of several its matrix is symmetric and positive."""
    own, sources = images(0, channels=1), images(1, channels=1)
    scale = sources.std((2, 3), keepdim=True) / own.std((2, 3), keepdim=True)
    wanted = (own - own.mean((2, 3), keepdim=True)) * scale + sources.mean((2, 3), keepdim=True)
    torch.testing.assert_close(transplanted(Colour, own, sources), wanted)
    own, sources = images(2), images(3)
    moved = transplanted(Colour, own, sources).flatten(2)
    centred = [x - x.mean(2, keepdim=True) for x in (own.flatten(2), moved)]
    for before, after in zip(*centred, strict=True):
        matrix = torch.linalg.lstsq(before.T, after.T).solution
        torch.testing.assert_close(matrix, matrix.T)
        assert (torch.linalg.eigvalsh(matrix) > 0).all()


def test_grey_and_plain_images_have_a_colour_too():
    grey = images(0, channels=1).expand(-1, 3, -1, -1)
    changed = transplanted(Colour, grey, images(1))
    assert changed.isfinite().all()
    torch.testing.assert_close(changed.mean((2, 3)), images(1).mean((2, 3)))
    plain = torch.full((2, 3, 8, 8), 0.25, dtype=torch.float64)
    sources = images(1, (8, 8))[:2]
    torch.testing.assert_close(
        transplanted(Colour, plain, sources), sources.mean((2, 3), keepdim=True).expand_as(plain)
    )
