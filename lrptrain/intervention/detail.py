"""The detail swap: the finest detail of an image becomes as strong as it is in another image, its donor.

What such a swap moves is the reliance on sharpness, noise and grain, which are everywhere: a scanner's noise, a camera
out of focus, images that were made larger. What the image shows stays where it is, and colour and contrast hardly
change.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.intervention.images import Images
from lrptrain.intervention.statistics import ValueRange

MOST_GAIN = 8.0
"""Detail is strengthened no further: an image that is out of focus has hardly any but the rounding of its pixels."""


def swap_detail(images: Images, donors: Images, valid: ValueRange | None = None) -> Images:
    """Give the finest detail of every channel of an image the standard deviation that it has in the donor.

    Each channel has a gain of its own, so that the swap commutes with the normalisation of the pixels.

    Args:
        images: The images to change.
        donors: The donor of every image; its size may differ, its channels may not.
        valid: The values that pixels can have; what lies beyond is brought to the nearest of them. None for no bounds.
    """
    wide = torch.promote_types(images.dtype, torch.float32)
    pixels = images.to(wide)
    detail = finest_detail(pixels)
    strength = detail.std((2, 3), correction=0, keepdim=True)
    wanted = finest_detail(donors.to(wide)).std((2, 3), correction=0, keepdim=True)
    # A constant channel has no detail that could be scaled.
    gain = torch.where(strength > 0, wanted / torch.where(strength > 0, strength, 1.0), 1.0).clamp(max=MOST_GAIN)
    swapped = pixels + (gain - 1) * detail
    if valid is not None:
        low, high = (bound.to(swapped)[:, None, None] for bound in valid)
        swapped = swapped.clamp(low, high)
    return swapped.to(images.dtype)


def finest_detail(images: Images) -> Images:
    """Return the finest level of a Laplacian pyramid (Burt & Adelson 1983): the images less themselves, smoothed.

    Each pixel is smoothed over its eight neighbours with binomial weights; beyond the edge, pixels are as at the edge.
    """
    weights = torch.tensor([0.25, 0.5, 0.25], dtype=images.dtype, device=images.device)
    channels = images.shape[1]
    kernel = (weights[:, None] * weights).expand(channels, 1, 3, 3)
    return images - F.conv2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), kernel, groups=channels)


def strength_of_detail(image: Float[Tensor, "channels height width"]) -> float:
    """Return the standard deviation of the finest detail of an image, the root of its mean square over the channels."""
    return float(finest_detail(image[None].float()).var((2, 3), correction=0).mean().sqrt())
