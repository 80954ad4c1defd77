"""Images that are laid out alike, as centred figures are, and those that are not."""

import numpy as np
import pytest
import torch

from lrptrain.findings.layout import ALIKE_FROM, are_laid_out_alike, share_of_common_layout
from tests.findings.drawings import drawings


def test_the_share_is_that_of_what_all_images_have_in_common():
    """Of a common picture of variance 1 and of independent noise of variance v it is 1 / (1 + v)."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(1, 3, 16, 16, generator=generator, dtype=torch.float64)
    for noise in (0.0, 0.5, 2.0):
        images = common + noise**0.5 * torch.randn(200, 3, 16, 16, generator=generator, dtype=torch.float64)
        images = images + torch.randn(200, 3, 1, 1, generator=generator)  # the brightness of an image says nothing
        # The variance of 768 pixels deviates by sqrt(2 / 768) = 0.05, and the share by at most a quarter of that.
        assert share_of_common_layout([*images]) == pytest.approx(1 / (1 + noise), abs=0.05)


def test_few_images_that_have_nothing_in_common_have_no_share():
    shares = [share_of_common_layout([*torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(i))])
              for i in range(30)]  # fmt: skip
    assert abs(np.mean(shares)) < 0.01
    assert max(shares) < ALIKE_FROM / 4


@pytest.mark.parametrize("count", [32, 128])
def test_centred_figures_are_alike_and_those_anywhere_are_not(count):
    drawn, _ = drawings(count)
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, 28), torch.linspace(-1, 1, 28), indexing="ij")
    centred = torch.maximum(drawn, 0.7 * (rows.hypot(columns) < 0.9))  # as nuclei in cells
    assert are_laid_out_alike([*centred])
    generator = torch.Generator().manual_seed(0)
    shifts = torch.randint(28, (count, 2), generator=generator).tolist()
    anywhere = [image.roll(tuple(shift), (1, 2)) for image, shift in zip(centred, shifts, strict=True)]
    assert not are_laid_out_alike(anywhere)


@pytest.mark.parametrize("axis", [0, 1])
def test_light_from_one_side_and_a_frame_are_no_layout(axis):
    noise = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ramp = 2 * torch.linspace(0, 1, 32)
    lit = noise + (ramp[:, None] if axis == 0 else ramp) * (torch.arange(64) % 2)[:, None, None, None]
    framed = noise.clone()
    framed[:, :, :3] = framed[:, :, -3:] = framed[..., :3] = framed[..., -3:] = 3.0
    # Of independent images, the share deviates by about 1 / 64 of the spread of a mean square over 576 cells.
    assert abs(share_of_common_layout([*lit])) < 0.02
    assert abs(share_of_common_layout([*framed])) < 0.02


def test_large_images_are_compared_in_cells_and_images_of_one_colour_have_no_layout():
    centred, _ = drawings(32)
    large = torch.nn.functional.interpolate(centred, size=280, mode="nearest")
    # Cells of eight pixels straddle figures that are ten times as large: the shares are near, not equal.
    assert share_of_common_layout([*large]) == pytest.approx(share_of_common_layout([*centred]), abs=0.05)
    assert share_of_common_layout([*torch.ones(8, 3, 16, 16)]) == 0
    assert share_of_common_layout([*centred[:1]]) == 0
    assert not are_laid_out_alike([*torch.full((8, 3, 16, 16), float("nan"))])
