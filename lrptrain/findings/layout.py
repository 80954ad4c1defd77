"""How images are laid out: does the same place hold the same part of the object in all of them?"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

CELLS = 32
"""Images are made smaller by a whole factor, as long as they keep so many cells a side."""
INNER = 0.75
"""So much of either side is looked at, from the middle outwards: a frame or a caption that all images have lies around
it, and objects do not."""
ALIKE_FROM = 0.2
"""So much of what differs between the places of an image is the same in all images where they are laid out alike. Of
photographs of things, pets and birds it is 0.03 at most, of digits anywhere on textures up to 0.13; of small scanned
digits that fill their images 0.22 and more, of cells 0.54 (draws of 32 images)."""


def are_laid_out_alike(images: Sequence[Float[Tensor, "channels height width"]]) -> bool:
    """Return whether images show their objects at the same place and in the same size, as scans or centred digits do.

    There, each place holds the same part of the object, and a class explains what any place holds: that a model reads
    one says nothing.
    """
    return share_of_common_layout(images) >= ALIKE_FROM


def share_of_common_layout(images: Sequence[Float[Tensor, "channels height width"]]) -> float:
    """Return how much of the variance between the inner places of an image all images have in common.

    Light that falls from one side, as on all images of a class, is no layout: what rises or falls evenly across an
    image is taken away first.

    Args:
        images: The images, of one shape.

    Returns:
        The share; at most 1, and about 0 (also a little below) where images have nothing in common. 0 of a single
        image, and where no image differs from place to place.
    """
    factor = max(1, min(images[0].shape[1:]) // CELLS)
    cells = torch.stack([F.avg_pool2d(image.detach().cpu().float()[None], factor)[0] for image in images])
    height, width = cells.shape[2:]
    cells = _level(cells[:, :, _inner(height), _inner(width)])
    number = len(cells)
    variance = float(cells.square().mean())
    # The square of a mean over independent images is 1 / n of their variance, even where they have nothing in common.
    common = float(cells.mean(0).square().mean()) - variance / number
    return common / (variance * (1 - 1 / number)) if variance > 0 and number > 1 else 0.0


def _inner(side: int) -> slice:
    around = round(side * (1 - INNER) / 2)
    return slice(around, side - around)


def _level(cells: Float[Tensor, "n channels rows columns"]) -> Float[Tensor, "n channels rows columns"]:
    """Return images less the plane through their pixels that has the least squared error."""
    levelled = cells - cells.mean((2, 3), keepdim=True)
    for axis in (2, 3):
        ramp = torch.linspace(-1, 1, cells.shape[axis])
        # A ramp along the rows is [rows, 1], one along the columns [columns].
        ramp = ramp[:, None] if axis == 2 else ramp
        mean_square = float(ramp.square().mean())
        if mean_square > 0:
            slope = (levelled * ramp).mean((2, 3), keepdim=True) / mean_square
            levelled = levelled - slope * ramp
    return levelled
