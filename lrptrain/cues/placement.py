"""Placement: where the evidence lies in an image, and how large it appears there."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.images import mask_in
from lrptrain.intervention.placement import as_large_as, at_place_of, swap_placement
from lrptrain.intervention.regions import image_of

_PLACED = {"location": at_place_of, "size": as_large_as}
_NAMES = {"location": "where the annotated object lies", "size": "how large the annotated object is"}


@dataclass(frozen=True)
class Placement(Cue):
    """Where evidence lies, or how large it is: the thing is cut out, its place painted over, and it is put anew.

    Attributes:
        what: Which of the two.
    """

    kind: ClassVar[str] = "placement"
    name: str
    role: Role
    what: Literal["location", "size"]

    @classmethod
    def of(cls, what: Literal["location", "size"], role: Role = "open") -> "Placement":
        """Return the cue."""
        return cls(_NAMES[what], role, what)

    @property
    def needs_annotation(self) -> bool:
        """See `Cue`."""
        return True

    def exchange(self, batch: Batch, donors: Batch) -> dict[str, Any]:
        """See `Cue`."""
        name, images = image_of(batch)
        evidence, given = mask_in(batch) == 1, mask_in(donors) == 1
        return {**batch, name: swap_placement(images, evidence, given, _PLACED[self.what])}
