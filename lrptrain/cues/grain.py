"""Grain: what an image has pixel by pixel: noise, the blocks of a compression, the mosaic or the lines of a sensor.

The spectrum says how strong such a pattern is. Where it lies is in the phases, which a spectrum leaves.
"""

from dataclasses import dataclass
from typing import ClassVar

from lrptrain.cues.look import Images, Look, Pixels
from lrptrain.cues.smoothing import smoothed

SMOOTHING = 1.0
"""The standard deviation, in pixels, of the low-pass whose rest is grain: no more than neighbours differ by."""


@dataclass(frozen=True)
class Grain(Look):
    """The highest frequencies of images, with their phases."""

    kind: ClassVar[str] = "grain"
    word: ClassVar[str] = "grain"

    def transplant(self, images: Images, own: Pixels, donors: Images, theirs: Pixels) -> Images:
        """See `Look`."""
        return smoothed(images, own, SMOOTHING) + (donors - smoothed(donors, theirs, SMOOTHING)) * theirs[:, None]
