"""A named region of the annotation, such as a watermark that people have drawn beside the evidence."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor

from lrptrain.cues.cue import Batch, Role
from lrptrain.cues.images import Part, Where, annotation_in, image_of, pixels_of


@dataclass(frozen=True)
class Region(Part):
    """A region of a mask `[regions, height, width]`, as far as it lies outside of the evidence, the first region.

    A sample loses its own, and is given what its source has where either has the region.

    Attributes:
        index: Which region, from 1 on.
    """

    kind: ClassVar[str] = "region"
    where: ClassVar[Where] = "outside"
    name: str
    role: Role
    index: int

    def locate(self, batch: Batch) -> Bool[Tensor, "batch height width"]:
        """Return its pixels; none of a mask that has no such region."""
        _, images = image_of(batch)
        outside = pixels_of("outside", batch)
        mask = batch.get("mask")
        if mask is None or mask.ndim != 4 or mask.shape[1] <= self.index:
            return outside & False
        return outside & (annotation_in(batch, (images.shape[2], images.shape[3]), self.index) == 1)

    def changed(self, batch: Batch, sources: Batch) -> Bool[Tensor, "batch height width"]:
        """See `Part`."""
        return (self.locate(batch) | self.locate(sources)) & pixels_of("outside", batch)
