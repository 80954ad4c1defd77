"""Spectrum: how strong details of every size and direction are: sharpness, noise, compression, waves, texture.

The energy of each band of frequencies, in each direction and channel, becomes the source's; phases, which say what an
image shows (Oppenheim & Lim 1981, "The importance of phase in signals"), stay.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.cues.look import Images, Look, Pixels, mean_of
from lrptrain.cues.visual.base import register_look

BANDS, DIRECTIONS = 8, 4
"""A resolution, and no bound: finer ones carry over more of the source's own pattern, coarser ones tell fewer apart."""


@register_look
@dataclass(frozen=True)
class Spectrum(Look):
    """Sharpness and texture of images."""

    kind: ClassVar[str] = "spectrum"
    word: ClassVar[str] = "sharpness and texture"
    order: ClassVar[int] = 20
    is_of_evidence: ClassVar[bool] = True

    def transplant(self, images: Images, own: Pixels, sources: Images, theirs: Pixels) -> Images:
        """See `Look`; of a part of an image, what lies beside it is filled with the part's mean."""
        mean = mean_of(images, own)
        bands = _bands(images.shape[2], images.shape[3]).to(images.device)
        ours = torch.fft.fft2((images - mean) * own[:, None])
        others = torch.fft.fft2((sources - mean_of(sources, theirs)) * theirs[:, None])
        # Per pixel of the part: a source's may be larger.
        energy = [
            _energy(x, bands) / part.flatten(1).sum(1).clamp(min=1)[:, None, None]
            for x, part in ((ours, own), (others, theirs))
        ]
        tiny = torch.finfo(images.dtype).tiny
        gain = torch.where(energy[0] > tiny, energy[1] / energy[0].clamp(min=tiny), 0.0).sqrt()
        return torch.fft.ifft2(ours * gain[..., bands]).real + mean


def _energy(values: Tensor, bands: Int[Tensor, "height width"]) -> Float[Tensor, "batch channels bands"]:
    power = values.abs().square().flatten(2)
    sums = power.new_zeros(*power.shape[:2], int(bands.max()) + 1)
    return sums.index_add_(2, bands.flatten(), power)


@lru_cache(maxsize=8)
def _bands(height: int, width: int) -> Int[Tensor, "height width"]:
    """Return the number of the band and direction of every frequency; that of one and of its negative is the same."""
    down = torch.fft.fftfreq(height)[:, None].expand(-1, width)
    across = torch.fft.fftfreq(width)[None].expand(height, -1)
    # From 0 to 1, at equal steps of the square root: octaves would leave the lowest ones of small images empty.
    radius = torch.hypot(down, across) / 0.5**0.5
    band = (radius.sqrt() * BANDS).floor().clamp(max=BANDS - 1)
    # The highest frequency along a side is its own negative.
    is_highest = (down == -0.5) | (across == -0.5)
    angle = torch.where(is_highest, torch.atan2(down.abs(), across.abs()), torch.atan2(down, across))
    direction = (angle / torch.pi * DIRECTIONS).round() % DIRECTIONS
    _, numbers = torch.unique(band * DIRECTIONS + direction, return_inverse=True)
    return numbers
