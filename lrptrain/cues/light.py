"""Light: how brightness falls across an image, from a side, at its rim, as a shadow."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from lrptrain.cues.look import Images, Look, Pixels, mean_of
from lrptrain.cues.smoothing import smoothed

SMOOTHING = 1 / 8
"""The standard deviation of the low-pass, in shares of the shorter side: what is smaller is no light, but a thing."""


@dataclass(frozen=True)
class Light(Look):
    """How light falls across images: the low frequencies of the luminance, without its mean, which is colour."""

    kind: ClassVar[str] = "light"
    word: ClassVar[str] = "light"

    def transplant(self, images: Images, own: Pixels, donors: Images, theirs: Pixels) -> Images:
        """See `Look`."""
        return images + _light(donors, theirs) - _light(images, own)


def _light(images: Images, inside: Pixels) -> Float[Tensor, "batch 1 height width"]:
    low = smoothed(images.mean(1, keepdim=True), inside, SMOOTHING * min(images.shape[2:]))
    return low - mean_of(low, inside)
