"""Volumes and videos: where along their slices or frames, and all that is not annotated.

Volumes are `[batch, channels, slices, height, width]`, videos `[batch, frames, channels, height, width]`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from lrptrain.cues.cue import QUARTER, Batch, Cue, Role
from lrptrain.cues.images import Part, Where, image_of, pixels_of
from lrptrain.cues.places import places
from lrptrain.cues.surroundings import Surroundings
from lrptrain.cues.visual.colour import Colour

Planes = Literal["slices", "frames"]
_PARTS = {
    "the first quarter": (0.0, QUARTER),
    "the middle half": (QUARTER, 1 - QUARTER),
    "the last quarter": (1 - QUARTER, 1.0),
}


@dataclass(frozen=True)
class Slices(Part):
    """The slices of one part of volumes, or the frames of one of videos, or what lies outside of the evidence there.

    Attributes:
        start: Where they begin, as a share of all slices.
        stop: Where they end.
        where: In which part of volumes.
    """

    kind: ClassVar[str] = "slices"
    name: str
    role: Role
    start: float
    stop: float
    where: Where = "image"

    def locate(self, batch: Batch) -> Bool[Tensor, "batch slices height width"]:
        """Return its voxels."""
        _, volumes = image_of(batch)
        inside = torch.zeros_like(volumes[:, 0], dtype=torch.bool)
        inside[:, round(self.start * volumes.shape[2]) : round(self.stop * volumes.shape[2])] = True
        return inside & pixels_of(self.where, batch)


@dataclass(frozen=True)
class VolumeSurroundings(Surroundings):
    """All of a volume that lies outside of the evidence."""

    kind: ClassVar[str] = "volume surroundings"
    planes: Planes = "slices"

    def children(self) -> Sequence[Cue]:
        """Return its places, along the slices and across them, and its brightness and contrast."""
        return [*parts_of_volumes(self.role, self.planes, self.where), Colour.of(self.where, self.role)]


def parts_of_volumes(role: Role, planes: Planes = "slices", where: Where = "image") -> list[Cue]:
    """Return the parts of volumes along their slices, and places that are the same in all slices."""
    along = [Slices(f"{name} of the {planes}", role, *part, where) for name, part in _PARTS.items()]
    return [*along, *places(role, where)]
