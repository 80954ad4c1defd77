"""Noise and lines go with their phases, and things stay."""

import pytest
import torch

from lrptrain.cues.visual.grain import Grain
from lrptrain.cues.visual.spectrum import Spectrum
from tests.cues.looked_at import transplanted


def test_grain_goes_with_its_phases_and_what_is_larger_stays():
    """Two mosaics that differ in nothing but by one pixel, over a slow wave each."""
    across = torch.arange(32, dtype=torch.float64)
    mosaic = (across[:, None] + across).remainder(2).expand(1, 1, -1, -1)
    slow = [torch.sin(2 * torch.pi * across / length).expand(1, 1, 32, -1) for length in (16, 32)]
    own, source = slow[0] + mosaic, slow[1] + 1 - mosaic
    inner = (..., slice(3, -3), slice(3, -3))  # at the rim, a smoothed image leans on one side
    changed = transplanted(Grain, own, source)
    torch.testing.assert_close(changed[inner], (slow[0] + 1 - mosaic)[inner], atol=0.1, rtol=0)
    taken = ((changed - slow[0]) * (1 - 2 * mosaic))[inner].mean()
    assert abs(2 * taken - 1) < 0.05, "all of the finest pattern goes"
    texture = transplanted(Spectrum, own, source)
    assert ((texture - texture.mean()) * (mosaic - 0.5)).mean() > 0.2, "the texture of both is the same"


def test_a_thing_is_no_grain_and_lines_all_over_are():
    """A pixel in 1024 stands out, and every fourth line of an image does not."""
    dim = torch.zeros(1, 1, 32, 32, dtype=torch.float64)
    dot, lines = dim.clone(), dim.clone()
    dot[..., 16, 16], lines[..., ::4, :] = 1, 1
    assert transplanted(Grain, dim, dot).abs().max() < 0.1
    assert transplanted(Grain, dim, lines).max() > 0.5


@pytest.mark.parametrize("axis", [2, 3])
def test_a_line_from_side_to_side_is_grain_wherever_it_lies_and_half_of_one_is_a_thing(axis):
    own, source, part = (torch.zeros(1, 1, 32, 32, dtype=torch.float64) for _ in range(3))
    own[..., 7], source[..., 20], part[..., :15, 20] = 1, -1, -1
    own, source, part = (each.transpose(3, axis) for each in (own, source, part))
    changed = transplanted(Grain, own, source).transpose(3, axis)
    # A smoothing of one pixel leaves 0.6 of a line of one, and spreads the rest beside it.
    assert changed[..., 7].abs().max() < 0.45
    assert changed[..., 20].max() < -0.55
    assert transplanted(Grain, torch.zeros_like(own), part).abs().max() < 0.3
