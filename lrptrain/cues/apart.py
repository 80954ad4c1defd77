"""A cue without another one: what it does beyond that one."""

from dataclasses import dataclass
from typing import Any, ClassVar

from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.texts import Spans, as_wide_as


@dataclass(frozen=True)
class Apart(Cue):
    """A cue without another one: it is exchanged, and the other put back as it was."""

    kind: ClassVar[str] = "apart"
    name: str
    role: Role
    one: Cue
    others: tuple[Cue, ...]

    @classmethod
    def of(cls, one: Cue, other: Cue) -> "Apart":
        """Return a cue without another one, or without one more."""
        inner, others = (one.one, (*one.others, other)) if isinstance(one, cls) else (one, (other,))
        return cls(f"{one.name} without {other.name}", one.role, inner, others)

    @property
    def needs_annotation(self) -> bool:
        """Whether one of them does."""
        return any(each.needs_annotation for each in (self.one, *self.others))

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`; of texts, words of both are neither given nor taken."""
        words = [each for each in self.others if isinstance(each, Spans) and isinstance(self.one, Spans)]
        changed = (
            self.one.exchange(batch, sources, words)
            if isinstance(self.one, Spans)
            else self.one.exchange(batch, sources)
        )
        for other in self.others:
            if other not in words:
                changed = other.exchange(changed, as_wide_as(changed, batch))
        return changed
