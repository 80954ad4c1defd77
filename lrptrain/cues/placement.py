"""Placement: where the evidence lies in an image, and how large it appears there.

A scanner centres one class, a photographer comes closer to another. The thing is cut out with a margin, its place is
painted over, and it is put where, or made as large as, the source's is. The surroundings stay what they are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch.nn import functional as F

from lrptrain.cues.boxes import Box, bounding_box, origins
from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.images import default_margin, image_of, mask_in
from lrptrain.cues.painting import Images, Pixels, dilate, inpainted

MOST_SCALE = 4.0
"""A thing is made no more than so many times as large, or as small: beyond, little of it would be left to be seen."""


def at_place_of(thing: Box, source: Box, size: tuple[int, int]) -> Box:
    """Return the box of a thing with its middle where the source's is, as far as it stays within the image."""
    down = (source.top + source.bottom - thing.top - thing.bottom) // 2
    across = (source.left + source.right - thing.left - thing.right) // 2
    return _within(Box(thing.top + down, thing.left + across, thing.bottom + down, thing.right + across), size)


def as_large_as(thing: Box, source: Box, size: tuple[int, int]) -> Box:
    """Return the box of a thing with its middle and shape, and with the source's area, as far as the image has room.

    Sides are whole pixels, so that shape and area are those that were asked for up to half a pixel of each.
    """
    scale = math.sqrt(source.height * source.width / (thing.height * thing.width))
    scale = min(max(scale, 1 / MOST_SCALE), MOST_SCALE, size[0] / thing.height, size[1] / thing.width)
    height = max(1, round(scale * thing.height))
    width = max(1, round(scale * thing.width))
    top = (thing.top + thing.bottom - height) // 2
    left = (thing.left + thing.right - width) // 2
    return _within(Box(top, left, top + height, left + width), size)


def _within(box: Box, size: tuple[int, int]) -> Box:
    """Return a box moved into the image."""
    top = min(max(box.top, 0), size[0] - box.height)
    left = min(max(box.left, 0), size[1] - box.width)
    return Box(top, left, top + box.height, left + box.width)


def swap_placement(
    images: Images, evidence: Pixels, source_evidence: Pixels, placed: Callable[[Box, Box, tuple[int, int]], Box]
) -> Images:
    """Put the evidence of every image where, or make it as large as, that of its source is."""
    size = (images.shape[2], images.shape[3])
    # Masks seldom hold the very edge of a thing: what is left of it at its old place would still tell where it was.
    thing = dilate(evidence, default_margin(size))
    source_thing = dilate(source_evidence, default_margin(size))
    everything = Box(0, 0, *size)
    before = [bounding_box(each) for each in thing]
    sources = [bounding_box(each) for each in source_thing]
    after = [
        placed(box, source, size) if box is not None and source is not None else None
        for box, source in zip(before, sources, strict=True)
    ]
    changed = _moved(images, thing, [box or everything for box in before], [box or everything for box in after])
    has_both = torch.tensor([box is not None for box in after], device=images.device)
    return torch.where(has_both[:, None, None, None], changed, images)


def _moved(images: Images, thing: Pixels, before: list[Box], after: list[Box]) -> Images:
    """Return the images with their things painted over, and what lies in one box put into another."""
    # Coordinates in 16 bits would be off by pixels.
    values = images.to(torch.promote_types(images.dtype, torch.float32))
    grid = origins(before, after, (images.shape[2], images.shape[3])).to(values)
    copied = F.grid_sample(values, grid, mode="bilinear", padding_mode="border", align_corners=False)
    covered = F.grid_sample(thing[:, None].to(values), grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return torch.where(covered > 0.5, copied, inpainted(values, thing)).to(images.dtype)


_PLACED = {"location": at_place_of, "size": as_large_as}
_NAMES = {"location": "where the annotated object lies", "size": "how large the annotated object is"}


@dataclass(frozen=True)
class Placement(Cue):
    """Where evidence lies, or how large it is: the thing is cut out, its place painted over, and it is put anew."""

    kind: ClassVar[str] = "placement"
    name: str
    role: Role
    what: Literal["location", "size"]

    @classmethod
    def of(cls, what: Literal["location", "size"], role: Role = "unreviewed") -> "Placement":
        """Return the cue."""
        return cls(_NAMES[what], role, what)

    @property
    def needs_annotation(self) -> bool:
        """See `Cue`."""
        return True

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`."""
        name, images = image_of(batch)
        evidence, given = mask_in(batch) == 1, mask_in(sources) == 1
        return {**batch, name: swap_placement(images, evidence, given, _PLACED[self.what])}
