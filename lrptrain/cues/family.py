"""A family of words: all numbers, dates, punctuation, links and the like, rare, capitalised or repeated ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from lrptrain.cues.cue import Role
from lrptrain.cues.text_words import TextWord, is_punctuation, markers_of, outside_markers
from lrptrain.cues.texts import Language, Span, Spans, TextPart


@dataclass(frozen=True)
class Family(Spans):
    """All words of a family."""

    kind: ClassVar[str] = "family"
    is_family: ClassVar[bool] = True
    family: str = ""

    @classmethod
    def of(cls, family: str, role: Role, language: Language, where: TextPart = "text") -> "Family":
        """Return the cue of a family."""
        return cls(f"the {family}", role, language, where, family)

    def spans(self, words: Sequence[TextWord]) -> list[Span]:
        """See `Spans`."""
        return FAMILIES[self.family](words)

    def children(self) -> Sequence["Family"]:
        """Return the family that is a part of it, if there is one."""
        part = _PARTS.get(self.family)
        return [self.of(part, self.role, self.language, self.where)] if part else []


def _numbers(words: Sequence[TextWord]) -> list[Span]:
    dates = _dates(words)
    digits = (word.span for word in words if any(each.isdigit() for each in word.text))
    return sorted([*dates, *(each for each in digits if not any(start <= each[0] < stop for start, stop in dates))])


def _punctuation(words: Sequence[TextWord]) -> list[Span]:
    return [word.span for word in outside_markers(words) if is_punctuation(word.text)]


def _dates(words: Sequence[TextWord]) -> list[Span]:
    return [marker.span for marker in markers_of(words) if marker.kind == "date"]


def _markers(words: Sequence[TextWord]) -> list[Span]:
    return [marker.span for marker in markers_of(words)]


def _of_pieces(words: Sequence[TextWord]) -> list[Span]:
    return [word.span for word in outside_markers(words) if len(word.ids) > 1]


def _capitalised(words: Sequence[TextWord]) -> list[Span]:
    return [word.span for word in words if word.text[:1].isupper()]


def _repeated(words: Sequence[TextWord]) -> list[Span]:
    runs = (list(run) for _, run in groupby(words, lambda word: word.text.casefold()))
    return [(run[0].span[0], run[-1].span[1]) for run in runs if len(run) > 1 and run[0].text.isalnum()]


FAMILIES: dict[str, Callable[[Sequence[TextWord]], list[Span]]] = {
    "links, mentions, tags and dates": _markers,
    "numbers": _numbers,
    "dates and years": _dates,
    "punctuation": _punctuation,
    "rare or misspelt words": _of_pieces,
    "capitalised words": _capitalised,
    "repeated words": _repeated,
}
"""The words of each family among those of a text. Rare words are those that a tokenizer cuts into pieces."""
_PARTS = {"numbers": "dates and years"}
LARGEST = tuple(each for each in FAMILIES if each not in _PARTS.values())
"""The families that are part of no other."""
