"""The low frequencies of the luminance are the source's afterwards."""

import numpy as np
import pytest
import torch
from scipy.fft import dctn

from lrptrain.cues.visual.light import WAVES, Light
from tests.cues.looked_at import SIZES, images, transplanted


@pytest.mark.parametrize(("length", "least", "most"), [(32, 0.5, 1), (12, 0, 0.2)])
def test_a_wave_as_long_as_an_image_is_light_and_a_shorter_one_is_not(length, least, most):
    across = torch.arange(32, dtype=torch.float64)
    wave = torch.sin(2 * torch.pi * across / length).expand(1, 3, 32, -1)
    changed = transplanted(Light, torch.zeros_like(wave), wave)[..., 4:-4]
    assert least < (changed * wave[..., 4:-4]).sum() / wave[..., 4:-4].square().sum() < most


@pytest.mark.parametrize("size", SIZES)
def test_the_lowest_cosines_of_the_luminance_become_those_of_the_source_and_all_others_stay(size):
    own, sources = images(0, size), images(1, size)
    changed = transplanted(Light, own, sources)
    before, after, given = (
        dctn(x.mean(1).numpy(), axes=(1, 2), norm="ortho")
        for x in (own, changed, sources)  # of the luminance
    )
    wanted = before.copy()
    wanted[:, :WAVES, :WAVES] = given[:, :WAVES, :WAVES]
    wanted[:, 0, 0] = before[:, 0, 0]
    np.testing.assert_allclose(after, wanted, atol=1e-12)
    difference = changed - own
    torch.testing.assert_close(difference, difference[:, :1].expand_as(difference))  # grey
