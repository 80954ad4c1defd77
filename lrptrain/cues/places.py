"""The same place in all images: the border, its edges and corners, the middle, and their quarters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from lrptrain.cues.cue import MOST, QUARTER, Batch, Cue, Role
from lrptrain.cues.images import Part, Where, image_of, pixels_of

Box = tuple[float, float, float, float]
"""Top, left, bottom and right, in shares of height and width."""
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
BORDER = QUARTER / 2
"""Half as wide as an edge, all around: so it, too, is less than half of an image, and to name it says something."""
_NEAR, _FAR = QUARTER, 1 - QUARTER  # the middle is what no edge covers
_MIDDLE: Box = (_NEAR, _NEAR, _FAR, _FAR)
_EDGES: dict[str, Box] = {
    "top": (0.0, 0.0, _NEAR, 1.0),
    "bottom": (_FAR, 0.0, 1.0, 1.0),
    "left": (0.0, 0.0, 1.0, _NEAR),
    "right": (0.0, _FAR, 1.0, 1.0),
}


@dataclass(frozen=True)
class Place(Part):
    """The same place in all images, and in all slices of volumes: a rectangle, less another one.

    Outside of the evidence, it is what of the place lies there, and sources give none of theirs.
    """

    kind: ClassVar[str] = "place"
    name: str
    role: Role
    box: Box
    hole: Box | None = None
    where: Where = "image"

    def locate(self, batch: Batch) -> Bool[Tensor, "batch height width"]:
        """Return its pixels."""
        _, images = image_of(batch)
        size = (images.shape[-2], images.shape[-1])
        inside = _inside(self.box, size)
        if self.hole is not None:
            inside &= ~_inside(self.hole, size)
        return inside.to(images.device) & pixels_of(self.where, batch)

    def children(self) -> Sequence[Cue]:
        """Return the corners of an edge, and what lies between them."""
        return [*self._corners(), *self._sides()] if self.box in _EDGES.values() else []

    def _corners(self) -> list["Place"]:
        found = []
        for down in ("top", "bottom"):
            for across in ("left", "right"):
                one, other = _EDGES[down], _EDGES[across]
                if self.box in (one, other):
                    box = (max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3]))
                    found.append(replace(self, name=f"the {down} {across} corner", box=box))
        return found

    def _sides(self) -> list["Place"]:
        top, left, bottom, right = self.box
        flat = right - left == 1.0
        box = (top, _NEAR, bottom, _FAR) if flat else (_NEAR, left, _FAR, right)
        return [replace(self, name=f"the middle of {self.name}", box=box)]


def places(role: Role, where: Where = "image") -> list[Place]:
    """Return the border of images and their edges; of what lies outside of the evidence also the middle.

    In most images the thing itself lies in the middle: that a model relies on it says nothing, and hides what does.
    """
    inner: Box = (BORDER, BORDER, 1 - BORDER, 1 - BORDER)
    edges = [Place(f"the {side} edge", role, box, None, where) for side, box in _EDGES.items()]
    middle = [Place("the middle", role, _MIDDLE, None, where)] if where == "outside" else []
    return [Place("the border", role, WHOLE, inner, where), *edges, *middle]


def background(role: Role = "unreviewed") -> Place:
    """Return all of an image but the middle: the background of objects that lie in the middle and fit into it.

    It needs no annotation. The middle is half as high and half as wide as the image: what of an object lies beyond it
    is taken for background, too. So it is tested only where you ask for it, `cues=[background()]`.

    Args:
        role: `"unreviewed"`, or `"shortcut"` where you know that no object reaches beyond the middle.

    >>> background().name
    'the background (all but the middle)'
    """
    return Place("the background (all but the middle)", role, WHOLE, _MIDDLE)


def place_of(located: Bool[Tensor, "batch height width"]) -> str:
    """Return the smallest edge, or part of one, that holds most of some pixels; "" if none does.

    No edge is more than a quarter of an image, so that pixels all over it lie in none.
    """
    size = (located.shape[1], located.shape[2])
    edges = [each for each in places("unreviewed") if each.hole is None]
    parts = [each for edge in edges for each in edge.children() if isinstance(each, Place)]
    for place in (*parts, *edges):
        if (located & _inside(place.box, size).to(located.device)).sum() > MOST * located.sum():
            return place.name
    return ""


def _inside(box: Box, size: tuple[int, int]) -> Bool[Tensor, "height width"]:
    inside = torch.zeros(size, dtype=torch.bool)
    top, left, bottom, right = (round(share * length) for share, length in zip(box, (*size, *size), strict=True))
    inside[top:bottom, left:right] = True
    return inside
