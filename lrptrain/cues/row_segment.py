"""Where rows stand: all of them, a third, the first or the last one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lrptrain.cues.cue import Cue, Role
from lrptrain.cues.rows import RowPart, Stretch

THIRDS = ("first", "middle", "last")


@dataclass(frozen=True)
class AllRows(Stretch):
    """All rows of a sample, or those that people did not mark."""

    kind: ClassVar[str] = "rows"
    is_rest: ClassVar[bool] = True

    def stretch(self, count: int) -> range:
        """See `Stretch`."""
        return range(count)

    def children(self) -> Sequence[Cue]:
        """Return the thirds of the rows, in their order."""
        return [RowSegment(f"the {name} third of the rows", self.role, self.where, i) for i, name in enumerate(THIRDS)]


@dataclass(frozen=True)
class RowSegment(Stretch):
    """A third of the rows, or the row at one end.

    Attributes:
        third: The number of the third, from 0 on.
        is_one: Whether it is one row alone, the first of the first third or the last of the last one.
    """

    kind: ClassVar[str] = "row segment"
    is_position: ClassVar[bool] = True
    third: int = 0
    is_one: bool = False

    def stretch(self, count: int) -> range:
        """See `Stretch`."""
        start, stop = (place * count // len(THIRDS) for place in (self.third, self.third + 1))
        if not self.is_one:
            return range(start, stop)
        return range(min(1, count)) if self.third == 0 else range(max(count - 1, 0), count)

    def children(self) -> Sequence[Cue]:
        """Return the first row of the first third, and the last row of the last one."""
        name = THIRDS[self.third]
        return [] if self.is_one or name == "middle" else [one_row(name, self.role, self.where)]


def one_row(end: str, role: Role, where: RowPart = "rows") -> RowSegment:
    """Return the first or the last row."""
    return RowSegment(f"the {end} row", role, where, THIRDS.index(end), True)
