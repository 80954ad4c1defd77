"""Rectangles of pixels."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Box(NamedTuple):
    """A rectangle of pixels: rows from `top` and columns from `left` on, `bottom` and `right` excluded."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def height(self) -> int:
        """The number of rows."""
        return self.bottom - self.top

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.right - self.left


def bounding_box(region: Bool[Tensor, "height width"]) -> Box | None:
    """Return the smallest box that holds a region; None if it is empty."""
    rows = region.any(1).nonzero().flatten()
    columns = region.any(0).nonzero().flatten()
    if not len(rows):
        return None
    return Box(int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1)


def origins(
    sources: Sequence[Box], targets: Sequence[Box], size: tuple[int, int]
) -> Float[Tensor, "batch height width 2"]:
    """Return for each pixel which point of the image comes there, as `grid_sample` wants it: across, then down.

    Coordinates run from -1 at one edge of the image to 1 at the other.
    """
    source = torch.tensor(sources, dtype=torch.float64)
    target = torch.tensor(targets, dtype=torch.float64)

    def along(axis: int) -> Float[Tensor, "batch length"]:
        # e.g. rows: the middle of pixel i lies at i + 0.5, and comes from as far down in the source as in the target.
        middles = torch.arange(size[axis], dtype=torch.float64) + 0.5
        scale = (source[:, 2 + axis] - source[:, axis]) / (target[:, 2 + axis] - target[:, axis])
        points = source[:, axis, None] + (middles - target[:, axis, None]) * scale[:, None]
        return 2 * points / size[axis] - 1

    across = along(1)[:, None, :].expand(-1, size[0], -1)
    down = along(0)[:, :, None].expand(-1, -1, size[1])
    return torch.stack([across, down], 3)
