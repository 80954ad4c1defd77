"""All that lies outside of the evidence, of an image or of a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor

from lrptrain.cues.beside import Beside
from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.images import Part, Where, pixels_of
from lrptrain.cues.places import places
from lrptrain.cues.visual import registered_looks


@dataclass(frozen=True)
class Surroundings(Part):
    """All of an image that lies outside of the evidence; a source's own evidence is painted over first."""

    kind: ClassVar[str] = "surroundings"
    is_rest: ClassVar[bool] = True
    name: str = "everything outside the annotation"
    role: Role = "shortcut"
    where: ClassVar[Where] = "outside"

    def locate(self, batch: Batch) -> Bool[Tensor, "batch height width"]:
        """Return the pixels outside the evidence."""
        return pixels_of("outside", batch)

    def children(self) -> Sequence[Cue]:
        """Return what lies next to the evidence, its places and its looks."""
        looks = (look.of(self.where, self.role) for look in registered_looks() if look.keeps_places)
        return [Beside(role=self.role), *places(self.role, self.where), *looks]
