"""How long a text is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lrptrain.cues.texts import Part, Rewriting, Token


@dataclass(frozen=True)
class Length(Rewriting):
    """How long a text is: it is made as long as its source's, of its own words; its middle is cut, or said again."""

    kind: ClassVar[str] = "length"

    def rewritten(self, own: Sequence[Part], theirs: Sequence[Part]) -> dict[int, list[Token]]:
        """See `Rewriting`; from both ends, so that beginning and end stay what they were."""
        changed: dict[int, list[Token]] = {}
        for number, (part, given) in enumerate(zip(own, theirs, strict=False)):
            count, wanted = len(part.tokens), len(given.tokens) or len(part.tokens)
            front = [part.tokens[i % count] for i in range(wanted - wanted // 2)]
            back = [part.tokens[-1 - i % count] for i in range(wanted // 2)][::-1]
            changed[number] = [(0, place) for place in (*front, *back)]
        return changed
