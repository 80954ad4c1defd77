"""Light: how brightness falls across an image, from a side, at its rim, as a shadow."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.cues.look import Images, Look, Pixels, mean_of, smoothed
from lrptrain.cues.visual.base import register_look

WAVES = 4
"""So many cosines along either side, the constant one included: what is smaller than a third of it is no light, but a
thing. They are a projection: none of them stays where it is taken away. A smoothing as wide leaves a fifth of a light
that falls off within a quarter of the side. Doubled, 5 instead of 3 cues are named in models without one; halved,
nothing changes (`python -m experiments.benchmark.moved`)."""


@register_look
@dataclass(frozen=True)
class Light(Look):
    """How light falls across images: the low frequencies of the luminance, without its mean, which is colour."""

    kind: ClassVar[str] = "light"
    word: ClassVar[str] = "light"
    order: ClassVar[int] = 30

    def transplant(self, images: Images, own: Pixels, sources: Images, theirs: Pixels) -> Images:
        """See `Look`."""
        return images + _light(sources, theirs) - _light(images, own)


def _light(images: Images, inside: Pixels) -> Float[Tensor, "batch 1 height width"]:
    grey = images.mean(1, keepdim=True)
    # What lies beside a part continues as the part does at its edge.
    filled = grey.where(inside[:, None], smoothed(grey, inside, min(images.shape[2:]) / 8))
    down, across = (_cosines(length).to(images) for length in images.shape[2:])
    low = down.mT @ (down @ filled @ across.mT) @ across
    return low - mean_of(low, inside)


def _cosines(length: int) -> Float[Tensor, "waves length"]:
    """Return the lowest cosines along a side, of length 1 and at right angles to each other."""
    places = math.pi * (torch.arange(length, dtype=torch.float64) + 0.5) / length
    waves = torch.cos(torch.arange(min(WAVES, length))[:, None] * places)
    return waves / waves.norm(dim=1, keepdim=True)
