"""Small pieces of images, and where in other images the same picture is."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch.parts import MarkPicture
from lrptrain.cues.boxes import Box
from lrptrain.intervention.regions import inside_boxes

CELL = 4
"""Images are made smaller until a patch has about so many pixels: then pieces of all models are alike in cost."""
SIDE = 3
"""The side of a piece in these pixels: what is a little smaller than a patch fits in whole, wherever it lies."""
ROUND = ((0, 1), (1, 0), (1, 1), (1, 2), (2, 1))
"""Row and column of the pixels of a piece that are compared: without its corners, in which a round dot has none."""
TOLERANCE = 0.15
"""Two pieces are the same picture if they differ by so many standard deviations of the pixels (root mean square)."""


class Reduced(NamedTuple):
    """Images of fewer pixels, each the mean of a square of theirs, at every half of its side.

    A mark looks the same in two images only where these squares lie alike on it.

    Attributes:
        pixels: The smaller images, in standard deviations of their pixels.
        spread: The standard deviation of each channel; 1 of a channel without any.
        factor: By how much they are smaller: a square has so many pixels a side.
        cell: So many squares side by side reach over a patch, or nearly.
        stride: So many pixels of the images lie between two of these.
        step: So many of these lie side by side in a square, and so between two pixels of a piece.
    """

    pixels: Float[Tensor, "n channels height width"]
    spread: Float[Tensor, " channels"]
    factor: int
    cell: int
    stride: int
    step: int

    @property
    def places(self) -> tuple[int, int]:
        """Return in how many rows and columns a piece can start."""
        reach = (SIDE - 1) * self.step
        return self.pixels.shape[2] - reach, self.pixels.shape[3] - reach

    def every_piece(self) -> Float[Tensor, "n values places"]:
        """Return the pieces at all places, these row by row; of a piece the pixels of `ROUND`, in all channels."""
        rows, columns = self.places
        parts = [
            self.pixels[..., down * self.step :, across * self.step :][..., :rows, :columns] for down, across in ROUND
        ]
        return torch.stack(parts, 2).flatten(1, 2).flatten(2)


def reduced(images: Float[Tensor, "n channels height width"], factor: int, grid: tuple[int, int]) -> Reduced:
    """Return images of fewer pixels, each the mean of `factor` x `factor` of theirs."""
    stride = max(1, factor // 2)
    small = F.avg_pool2d(images, factor, stride)
    deviation = small.std((0, 2, 3))
    spread = torch.where(deviation > 0, deviation, 1.0)
    coarsest = factors((images.shape[2], images.shape[3]), grid)[0]
    cell = CELL * coarsest // factor
    return Reduced(small / spread[:, None, None], spread, factor, cell, stride, factor // stride)


def places_of(images: Float[Tensor, "n channels height width"], mark: MarkPicture) -> list[Box | None]:
    """Return where a mark lies in each of some images, as large as those that it was seen in; None where it does not.

    Args:
        images: The images.
        mark: How the mark looks.
    """
    spread = torch.tensor(mark.spread, device=images.device)
    small = F.avg_pool2d(images.float(), mark.factor, mark.stride) / spread[:, None, None]
    picture = Reduced(small, spread, mark.factor, 0, mark.stride, mark.step)
    piece = torch.tensor(mark.values, device=images.device)
    nearest, place = (picture.every_piece() - piece[:, None]).square().mean(1).sqrt().min(1)
    top, left, bottom, right = mark.reach
    boxes: list[Box | None] = []
    for distance, index in zip(nearest.tolist(), place.tolist(), strict=True):
        down = index // picture.places[1] * mark.stride
        across = index % picture.places[1] * mark.stride
        box = within(Box(top + down, left + across, bottom + down, right + across), mark.size)
        boxes.append(box if distance <= TOLERANCE else None)
    return boxes


def inside_marks(images: Float[Tensor, "n channels height width"], mark: MarkPicture) -> Bool[Tensor, "n height width"]:
    """Return the pixels that a mark covers in images of any size; none of those without it.

    Args:
        images: The images.
        mark: How it looks. Images of another size than those that it was seen in are compared in that size.
    """
    size = (images.shape[2], images.shape[3])
    compared = images.float()
    if size != mark.size:
        compared = F.interpolate(compared, mark.size, mode="bilinear", antialias=True)
    inside = inside_boxes(places_of(compared, mark), mark.size)
    if size != mark.size:
        inside = F.interpolate(inside[:, None].float(), size, mode="nearest-exact")[:, 0] > 0
    return inside.to(images.device)


def within(box: Box, size: tuple[int, int]) -> Box:
    """Return the part of a box that lies in images of a size."""
    return Box(max(0, box.top), max(0, box.left), min(size[0], box.bottom), min(size[1], box.right))


def factors(size: tuple[int, int], grid: tuple[int, int]) -> list[int]:
    """Return by how much images are made smaller: until a patch has about `CELL` pixels a side, and half of that."""
    coarse = max(1, min(size[0] // grid[0], size[1] // grid[1]) // CELL)
    return [coarse, coarse // 2] if coarse > 1 else [coarse]
