"""A pair of texts: one of them as a whole, and how many words of the second stand in the first."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.texts import Language, Part, Token, composed, parts_of, row_of

OF_PAIR = 2


@dataclass(frozen=True)
class _OfPairs(Cue):
    name: str
    role: Role
    language: Language = field(compare=False, repr=False)

    def exchange(self, batch: Batch, donors: Batch) -> dict[str, Any]:
        """See `Cue`; what is no pair, or has a donor that is none, stays."""
        rows = []
        pairs = zip(parts_of(batch, self.language), parts_of(donors, self.language), strict=True)
        for row, (own, theirs) in enumerate(pairs):
            put: dict[int, list[Token]] = {part.tokens[0]: [(0, place) for place in part.tokens] for part in own}
            if len(own) == len(theirs) == OF_PAIR and all(part.words for part in (*own, *theirs)):
                number, tokens = self._changed(own, theirs)
                put[own[number].tokens[0]] = tokens
            rows.append(row_of(batch, row, own, put))
        return composed(batch, donors, rows, self.language)

    @abstractmethod
    def _changed(self, own: Sequence[Part], theirs: Sequence[Part]) -> tuple[int, list[Token]]:
        """Return which text of a pair is changed, and its new tokens."""


@dataclass(frozen=True)
class OneOfPair(_OfPairs):
    """One text of a pair, as a whole.

    Attributes:
        number: 0 for the first, 1 for the second.
    """

    kind: ClassVar[str] = "one_of_pair"
    number: int = 0

    def _changed(self, own: Sequence[Part], theirs: Sequence[Part]) -> tuple[int, list[Token]]:
        return self.number, [(1, place) for place in theirs[self.number].tokens]


@dataclass(frozen=True)
class Overlap(_OfPairs):
    """How many words of the second text stand in the first: as large a share as of the donor's.

    For more, words of the first text take the place of words of the second; for less, words of the donor's second text.
    """

    kind: ClassVar[str] = "overlap"

    def _changed(self, own: Sequence[Part], theirs: Sequence[Part]) -> tuple[int, list[Token]]:
        known = {word.ids for word in own[0].words}
        said = {word.ids for word in own[1].words}
        inside = [word.ids in known for word in own[1].words]
        theirs_known = {word.ids for word in theirs[0].words}
        share = sum(word.ids in theirs_known for word in theirs[1].words) / len(theirs[1].words)
        more = [[(0, place) for place in range(*word.span)] for word in own[0].words if word.ids not in said]
        less = [[(1, place) for place in range(*word.span)] for word in theirs[1].words if word.ids not in known]
        surplus = sum(inside) - round(share * len(inside))
        tokens: list[Token] = []
        for word, is_inside in zip(own[1].words, inside, strict=True):
            if surplus > 0 and is_inside and less:
                tokens += less[surplus % len(less)]
                surplus -= 1
            elif surplus < 0 and not is_inside and more:
                tokens += more[surplus % len(more)]
                surplus += 1
            else:
                tokens += [(0, place) for place in range(*word.span)]
        return 1, tokens
