"""A piece of one image pasted into others: does the prediction follow it?"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from lrptrain.cues.boxes import Box
from lrptrain.cues.painting import Images


def pasted(images: Images, source: Float[Tensor, "channels height width"], boxes: Sequence[Box], at: Tensor) -> Images:
    """Return images with pieces of another one, each at a place of its own.

    Args:
        images: The images to change, of the size of `source`.
        source: Where the pieces are taken from.
        boxes: For every image, where in `source`.
        at: Numbers in [0, 1), `[batch, 2]`: where between the first and the last row and column that a piece fits.
    """
    changed = images.clone()
    for image, box, (down, across) in zip(changed, boxes, at.tolist(), strict=True):
        piece = source[:, box.top : box.bottom, box.left : box.right].to(image)
        rows, columns = piece.shape[1:]
        top = int(down * (image.shape[1] - rows + 1))
        left = int(across * (image.shape[2] - columns + 1))
        image[:, top : top + rows, left : left + columns] = piece
    return changed


def elsewhere(box: Box, size: tuple[int, int], draw: float) -> Box:
    """Return a box of the same shape that has no pixel in common with it; any one where there is no such place.

    Args:
        box: The box.
        size: Rows and columns of the image.
        draw: A number in [0, 1): which of these boxes.
    """
    top, left = np.indices((size[0] - box.height + 1, size[1] - box.width + 1)).reshape(2, -1)
    apart = np.flatnonzero((abs(top - box.top) >= box.height) | (abs(left - box.left) >= box.width))
    places = apart if len(apart) else np.arange(len(top))
    place = places[int(draw * len(places))]
    return Box(int(top[place]), int(left[place]), int(top[place]) + box.height, int(left[place]) + box.width)
