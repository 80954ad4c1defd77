"""Several cues at a time, each taken from the same donor."""

from dataclasses import dataclass
from typing import Any, ClassVar

from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.texts import as_wide_as


@dataclass(frozen=True)
class Both(Cue):
    """Two cues: where each says what the other does, only both at a time move an answer.

    Attributes:
        one: The one.
        other: The other.
    """

    kind: ClassVar[str] = "both"
    name: str
    role: Role
    one: Cue
    other: Cue

    @classmethod
    def of(cls, one: Cue, other: Cue) -> "Both":
        """Return two cues as one."""
        return cls(f"{one.name} and {other.name}", one.role if one.role == other.role else "open", one, other)

    @property
    def needs_annotation(self) -> bool:
        """See `Cue`."""
        return self.one.needs_annotation or self.other.needs_annotation

    def exchange(self, batch: Batch, donors: Batch) -> dict[str, Any]:
        """See `Cue`."""
        changed = self.one.exchange(batch, donors)
        return self.other.exchange(changed, as_wide_as(changed, donors))

    def to_dict(self) -> dict[str, Any]:
        """See `Cue`."""
        both = {"one": self.one.to_dict(), "other": self.other.to_dict()}
        return {"kind": self.kind, "name": self.name, "role": self.role, **both}


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

    def exchange(self, batch: Batch, donors: Batch) -> dict[str, Any]:
        """See `Cue`."""
        changed = self.one.exchange(batch, donors)
        return self.other.exchange(changed, as_wide_as(changed, batch))
