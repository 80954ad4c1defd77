"""The detail swap: the fine detail of an image becomes as strong as it is in another image, its donor.

What such a swap moves is the reliance on sharpness, noise, grain and regular patterns, which are everywhere: a
scanner's noise, a camera out of focus, images that were made larger, the lines of a screen. What the image shows stays
where it is, and its colours stay what they are.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.intervention.images import Images
from lrptrain.intervention.statistics import ValueRange

LEVELS = 2
"""Scales of detail: what is finer than 2 pixels, and than 4. In trials (experiments/detection) a third one moved clean
models more than it told of others."""
BANDS = 3 * LEVELS
MOST_GAIN = 8.0
"""Detail is strengthened no further: an image that is out of focus has hardly any but the rounding of its pixels."""


def swap_detail(images: Images, donors: Images, valid: ValueRange | None = None) -> Images:
    """Give the detail of every channel of an image the standard deviation that it has in the donor, band by band.

    Each channel has gains of its own, so that the swap commutes with the normalisation of the pixels.

    Args:
        images: The images to change.
        donors: The donor of every image; its size may differ, its channels may not.
        valid: The values that pixels can have; what lies beyond is brought to the nearest of them. None for no bounds.
    """
    wide = torch.promote_types(images.dtype, torch.float32)
    swapped = images.to(wide)
    own = detail_bands(swapped)
    for detail, wanted in zip(own, strengths(detail_bands(donors.to(wide))), strict=True):
        (strength,) = strengths([detail])
        # A constant channel has no detail that could be scaled.
        gain = torch.where(strength > 0, wanted / torch.where(strength > 0, strength, 1.0), 1.0).clamp(max=MOST_GAIN)
        swapped = swapped + (gain - 1)[..., None, None] * detail
    if valid is not None:
        low, high = (bound.to(swapped)[:, None, None] for bound in valid)
        swapped = swapped.clamp(low, high)
    return swapped.to(images.dtype)


def detail_bands(images: Images) -> list[Images]:
    """Return the bands of an undecimated wavelet transform with binomial weights, three of each level.

    Of a level, finest first: what changes across and not down, what changes in both directions, and what changes down
    and not across (Holschneider et al. 1989, "à trous"). With the smooth rest they add up to the images. Beyond the
    edge, pixels are as at the edge.
    """
    bands = []
    smooth = images
    for level in range(LEVELS):
        across = smooth - _smoothed(smooth, 3, 2**level)
        across_alone = _smoothed(across, 2, 2**level)
        without = smooth - across
        smooth = _smoothed(without, 2, 2**level)
        bands += [across_alone, across - across_alone, without - smooth]
    return bands


def _smoothed(images: Images, axis: int, step: int) -> Images:
    """Return the mean of every pixel and those `step` before and behind it along an axis, with binomial weights."""
    padding = (step, step, 0, 0) if axis == 3 else (0, 0, step, step)
    padded = F.pad(images, padding, mode="replicate")
    length = images.shape[axis]
    before, middle, behind = (padded.narrow(axis, i * step, length) for i in range(3))
    return (before + behind) / 4 + middle / 2


def strengths(bands: Sequence[Images]) -> list[Float[Tensor, "batch channels"]]:
    """Return the standard deviation of every channel of every band."""
    return [band.std((2, 3), correction=0) for band in bands]


def strength_of_detail(image: Float[Tensor, "channels height width"]) -> Float[Tensor, " bands"]:
    """Return the strength of an image's detail in every band, the root of the mean square over its channels."""
    return torch.stack([each.square().mean().sqrt() for each in strengths(detail_bands(image[None].float()))])
