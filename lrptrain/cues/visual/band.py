"""A channel of images that have more than those of a picture, such as a band of a satellite."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from lrptrain.cues.cue import Batch, Role
from lrptrain.cues.images import Part, Where, image_of, pixels_of
from lrptrain.cues.visual.base import register_parts

PICTURES = (1, 3)
"""So many channels have pictures in grey and in colours, whose channels are no things by themselves."""


@dataclass(frozen=True)
class Band(Part):
    """One channel of images, or what of it lies outside of the evidence."""

    kind: ClassVar[str] = "band"
    name: str
    role: Role
    channel: int
    where: Where = "image"

    def locate(self, batch: Batch) -> Bool[Tensor, "batch channels height width"]:
        """Return its places."""
        inside = torch.zeros_like(image_of(batch)[1], dtype=torch.bool)
        inside[:, self.channel] = pixels_of(self.where, batch)
        return inside


@register_parts
def bands(role: Role, channels: int, where: Where = "image") -> list[Band]:
    """Return every channel of images by itself; none of pictures."""
    beside = "" if where == "image" else " outside the annotation"
    return [Band(f"channel {i}{beside}", role, i, where) for i in range(channels) if channels not in PICTURES]
