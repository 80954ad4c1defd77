"""A cue without another one: what it does beyond that one."""

from dataclasses import dataclass
from typing import Any, ClassVar

from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.texts import as_wide_as


@dataclass(frozen=True)
class Apart(Cue):
    """A cue without another one: it is exchanged, and the other put back as it was.

    Attributes:
        one: What is exchanged.
        other: What stays.
    """

    kind: ClassVar[str] = "apart"
    name: str
    role: Role
    one: Cue
    other: Cue

    @classmethod
    def of(cls, one: Cue, other: Cue) -> "Apart":
        """Return a cue without another one."""
        return cls(f"{one.name} without {other.name}", one.role, one, other)

    @property
    def needs_annotation(self) -> bool:
        """Whether one of them does."""
        return self.one.needs_annotation or self.other.needs_annotation

    def exchange(self, batch: Batch, donors: Batch) -> dict[str, Any]:
        """See `Cue`."""
        changed = self.one.exchange(batch, donors)
        return self.other.exchange(changed, as_wide_as(changed, batch))
