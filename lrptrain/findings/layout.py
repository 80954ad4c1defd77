"""How images are laid out: does the same place hold the same part of the object in all of them?"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

CELLS = 32
"""Images are made smaller by a whole factor, as long as they keep so many cells a side."""
ALIKE_FROM = 0.2
"""So much of what differs between the places of an image is the same in all images where they are laid out alike. Of
photographs of things, pets and birds it is 0.01 to 0.06; of centred digits 0.29, of clothes 0.35 and of cells 0.56."""


def are_laid_out_alike(images: Sequence[Float[Tensor, "channels height width"]]) -> bool:
    """Return whether images show their objects at the same place and in the same size, as scans or centred digits do.

    There, each place holds the same part of the object, and a class explains what any place holds: that a model reads
    one says nothing.
    """
    return share_of_common_layout(images) >= ALIKE_FROM


def share_of_common_layout(images: Sequence[Float[Tensor, "channels height width"]]) -> float:
    """Return how much of the variance between the places of an image all images have in common.

    Args:
        images: The images, at least two, of one shape.

    Returns:
        The share; at most 1, and about 0 (also a little below) where images have nothing in common. 0 where no image
        differs from place to place.
    """
    factor = max(1, min(images[0].shape[1:]) // CELLS)
    cells = torch.stack([F.avg_pool2d(image.detach().cpu().float()[None], factor)[0] for image in images])
    cells = cells - cells.mean((2, 3), keepdim=True)
    number = len(cells)
    variance = float(cells.square().mean())
    # The square of a mean over independent images is 1 / n of their variance, even where they have nothing in common.
    common = float(cells.mean(0).square().mean()) - variance / number
    return common / (variance * (1 - 1 / number)) if variance > 0 else 0.0
