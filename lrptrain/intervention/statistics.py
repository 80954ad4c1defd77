"""The statistics swap: an image takes the mean and the spread of every colour channel from another image, its donor.

What such a swap moves is the reliance on colour, brightness and contrast, which lie nowhere in particular: no map shows
them, and no place can be painted over. It is instance normalisation with the statistics of another image (Huang &
Belongie 2017, "Arbitrary style transfer in real-time with adaptive instance normalization", on features instead of
pixels). As an affine map of every channel it commutes with the normalisation of the pixels, so that nobody has to know
which was used.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.cues.painting import Images

LEAST_SPREAD = 1e-3
"""A channel is constant if its standard deviation is at most this share of the donor's. Of pixels in 8 bits that is
less than a tenth of a step: the rounding of a resize or a normalisation, which a larger gain would draw out into noise.
"""


class ValueRange(NamedTuple):
    """The least and the largest value of every channel, over all images: what is known of the range of valid pixels."""

    low: Float[Tensor, " channels"]
    high: Float[Tensor, " channels"]


def value_range(images: list[Float[Tensor, "channels _height _width"]]) -> ValueRange:
    """Return the range of the values that images have in each channel; their sizes may differ."""
    flat = [image.flatten(1) for image in images]
    low = torch.stack([each.amin(1) for each in flat]).amin(0)
    high = torch.stack([each.amax(1) for each in flat]).amax(0)
    return ValueRange(low, high)


def clamped(images: Images, valid: ValueRange | None) -> Images:
    """Return images of which what lies beyond the range is brought to its nearest end; None for no range."""
    if valid is None:
        return images
    low, high = (bound.to(images)[:, None, None] for bound in valid)
    return images.clamp(low, high)


def swap_statistics(images: Images, donors: Images, valid: ValueRange | None = None) -> Images:
    """Give every image the mean and the standard deviation that each channel has in its donor.

    A constant channel has no contrast that could be scaled: it becomes the donor's mean.

    Args:
        images: The images to change.
        donors: The donor of every image; its size may differ, its channels may not.
        valid: The values that pixels can have; what lies beyond is brought to the nearest of them. None for no bounds.
    """
    # Sums over all pixels of an image in 16 bits would lose more than the swap changes.
    wide = torch.promote_types(images.dtype, torch.float32)
    pixels = images.to(wide)
    mean, spread = _statistics(pixels)
    donor_mean, donor_spread = _statistics(donors.to(wide))
    # [batch, channels, 1, 1]. Beside the donor's spread: a magnitude would change with the normalisation.
    is_constant = spread <= LEAST_SPREAD * donor_spread
    gain = torch.where(is_constant, 0.0, donor_spread / torch.where(is_constant, 1.0, spread))
    swapped = (pixels - mean) * gain + donor_mean
    return clamped(swapped, valid).to(images.dtype)


def _statistics(images: Images) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of every channel of every image, `[batch, channels, 1, 1]`."""
    # The spread of the pixels that are there, not an estimate for others: an image of one pixel has 0, and not nan.
    spread, mean = torch.std_mean(images, (2, 3), correction=0, keepdim=True)
    return mean, spread
