"""Rectangles of pixels."""

from typing import NamedTuple

from jaxtyping import Bool
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
