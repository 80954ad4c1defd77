"""The shading swap: light falls across an image as it does across another one, its donor.

What such a swap moves is the reliance on uneven light: a lamp that stands on one side, dark corners, a border that
shines. They are everywhere in an image, and change its mean and spread but little. What the image shows stays where it
is, and as sharp as it was.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.cues.painting import Images
from lrptrain.intervention.statistics import ValueRange, clamped

TERMS = ("from left to right", "from top to bottom", "towards the sides", "towards top and bottom", "along a diagonal")
"""What the terms of a shading say, in their order."""


def swap_shading(images: Images, donors: Images, valid: ValueRange | None = None) -> Images:
    """Give every channel of an image the shading that it has in the donor, and keep its mean.

    It is added, channel by channel, so that the swap commutes with the normalisation of the pixels.

    Args:
        images: The images to change.
        donors: The donor of every image; its size may differ, its channels may not.
        valid: The values that pixels can have; what lies beyond is brought to the nearest of them. None for no bounds.
    """
    wide = torch.promote_types(images.dtype, torch.float32)
    pixels = images.to(wide)
    # Of two constant images, the difference is 0 to the bit.
    difference = shading(donors.to(wide)) - shading(pixels)
    swapped = pixels + torch.einsum("bct,thw->bchw", difference, _surfaces(pixels))
    return clamped(swapped, valid).to(images.dtype)


def shading(images: Images) -> Float[Tensor, "batch channels terms"]:
    """Return the second-order surface through the pixels of every channel that has the least squared error.

    Its terms are orthogonal to each other and to a constant, and as large as their mean square over the image is 1: of
    a grid of pixels, the products of two discrete Legendre polynomials of at most second order in all.
    """
    surfaces = _surfaces(images)
    return torch.einsum("bchw,thw->bct", images.to(surfaces.dtype), surfaces) / surfaces[0].numel()


def _surfaces(images: Images) -> Float[Tensor, "terms height width"]:
    """Return the surfaces of `TERMS`; 0 where there are too few pixels for one."""
    down, bent_down = _polynomials(images.shape[2], images)
    across, bent_across = _polynomials(images.shape[3], images)
    flat_down = torch.ones_like(down)
    flat_across = torch.ones_like(across)
    factors = (
        (flat_down, across),
        (down, flat_across),
        (flat_down, bent_across),
        (bent_down, flat_across),
        (down, across),
    )
    return torch.stack([along[:, None] * row for along, row in factors])


def _polynomials(length: int, like: Tensor) -> tuple[Float[Tensor, " length"], Float[Tensor, " length"]]:
    """Return the straight and the bent one over so many pixels, of mean 0 and mean square 1."""
    places = torch.linspace(-1, 1, length, dtype=torch.float64)
    places = places - places.mean()  # a single pixel lies in the middle
    squares = places.square() - places.square().mean()
    # By symmetry the square is orthogonal to the straight line already.
    straight, bent = (_of_mean_square_1(each).to(like.device, like.dtype) for each in (places, squares))
    return straight, bent


def _of_mean_square_1(values: Float[Tensor, " length"]) -> Float[Tensor, " length"]:
    size = values.square().mean().sqrt()
    return values / size if size > 1e-9 else torch.zeros_like(values)
