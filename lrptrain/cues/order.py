"""The order of words."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lrptrain.cues.text_words import TextWord
from lrptrain.cues.texts import Part, Rewriting, Token


@dataclass(frozen=True)
class Order(Rewriting):
    """In what order words stand: those that sources have, too, change places until they stand as there."""

    kind: ClassVar[str] = "order"

    def rewritten(self, own: Sequence[Part], theirs: Sequence[Part]) -> dict[int, list[Token]]:
        """See `Rewriting`; a word that is said twice counts as two words."""
        return {i: _ordered(part, given) for i, (part, given) in enumerate(zip(own, theirs, strict=False))}


def _ordered(own: Part, theirs: Part) -> list[Token]:
    places = {key: word.span for key, word in _numbered(own.words).items()}
    shared = [key for key in _numbered(theirs.words) if key in places]
    # The places that shared words have, in the text's order, are taken by them in the source's.
    slots = sorted(places[key] for key in shared)
    taken = {slot: places[key] for slot, key in zip(slots, shared, strict=True)}
    return [(0, place) for word in own.words for place in range(*taken.get(word.span, word.span))]


def _numbered(words: Sequence[TextWord]) -> dict[tuple[tuple[int, ...], int], TextWord]:
    """Return words by what they are and by how often they were said before, in their order."""
    said: dict[tuple[int, ...], int] = defaultdict(int)
    numbered = {}
    for word in words:
        numbered[word.ids, said[word.ids]] = word
        said[word.ids] += 1
    return numbered
