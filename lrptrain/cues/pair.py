"""A pair of texts: one of them as a whole, and how many words of the second stand in the first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lrptrain.cues.texts import Part, Rewriting, Token


def are_pairs(*samples: Sequence[Part]) -> bool:
    """Return whether all samples are pairs, of which both texts have words: what is none, or meets one, stays."""
    return all(len(parts) == 2 and all(part.words for part in parts) for parts in samples)


@dataclass(frozen=True)
class OneOfPair(Rewriting):
    """One text of a pair, as a whole."""

    kind: ClassVar[str] = "one_of_pair"
    is_position: ClassVar[bool] = True
    number: int = 0

    def rewritten(self, own: Sequence[Part], theirs: Sequence[Part]) -> dict[int, list[Token]]:
        """See `Rewriting`."""
        if not are_pairs(own, theirs):
            return {}
        return {self.number: [(1, place) for place in theirs[self.number].tokens]}


@dataclass(frozen=True)
class Overlap(Rewriting):
    """How many words of the second text stand in the first: as large a share as of the source's.

    For more, words of the first text take the place of words of the second; for less, words of the
    source's second text.
    """

    kind: ClassVar[str] = "overlap"

    def rewritten(self, own: Sequence[Part], theirs: Sequence[Part]) -> dict[int, list[Token]]:
        """See `Rewriting`."""
        if not are_pairs(own, theirs):
            return {}
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
        return {1: tokens}
