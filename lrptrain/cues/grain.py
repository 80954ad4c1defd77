"""Grain: what an image has pixel by pixel, all over: noise, blocks of a compression, the mosaic or lines of a sensor.

The spectrum says how strong such a pattern is. Where it lies is in the phases, which a spectrum leaves.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from lrptrain.cues.look import Images, Look, Pixels, mean_of
from lrptrain.cues.smoothing import smoothed

SMOOTHING = 1.0
"""The standard deviation, in pixels, of the low-pass whose rest is grain: no more than neighbours differ by."""
ALL_OVER = 2.0
"""What exceeds so many standard deviations of that rest, as 5 % of normal numbers do, is the edge of a thing."""


@dataclass(frozen=True)
class Grain(Look):
    """The highest frequencies of images, with their phases."""

    kind: ClassVar[str] = "grain"
    word: ClassVar[str] = "grain"

    def transplant(self, images: Images, own: Pixels, donors: Images, theirs: Pixels) -> Images:
        """See `Look`."""
        return images + _grain(donors, theirs) - _grain(images, own)


def _grain(images: Images, inside: Pixels) -> Images:
    rest = (images - smoothed(images, inside, SMOOTHING)) * inside[:, None]
    limit = ALL_OVER * mean_of(rest.square(), inside).clamp(min=torch.finfo(images.dtype).tiny).sqrt()
    return torch.maximum(torch.minimum(rest, limit), -limit)
