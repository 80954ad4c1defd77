"""How long a text is."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.texts import Language, Token, composed, parts_of, row_of


@dataclass(frozen=True)
class Length(Cue):
    """How long a text is: it is made as long as its donor's, of its own words; its middle is cut, or said again."""

    kind: ClassVar[str] = "length"
    name: str
    role: Role
    language: Language = field(compare=False, repr=False)

    def exchange(self, batch: Batch, donors: Batch) -> dict[str, Any]:
        """See `Cue`."""
        rows = []
        pairs = zip(parts_of(batch, self.language), parts_of(donors, self.language), strict=True)
        for row, (own, theirs) in enumerate(pairs):
            put: dict[int, list[Token]] = {}
            for number, part in enumerate(own):
                wanted = len(theirs[number].tokens) if number < len(theirs) else len(part.tokens)
                count = len(part.tokens)
                # From both ends, so that beginning and end stay what they were.
                front = [part.tokens[i % count] for i in range(wanted - wanted // 2)]
                back = [part.tokens[-1 - i % count] for i in range(wanted // 2)][::-1]
                put[part.tokens[0]] = [(0, place) for place in (*front, *back)]
            rows.append(row_of(batch, row, own, put))
        return composed(batch, donors, rows, self.language)
