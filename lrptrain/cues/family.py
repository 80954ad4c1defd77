"""A family of words: all numbers, punctuation, links and the like, rare words, capitalised or repeated ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from lrptrain.cues.cue import Role
from lrptrain.cues.text_words import TextWord, is_punctuation, markers_of, outside_markers
from lrptrain.cues.texts import Language, Span, Spans, TextPart


@dataclass(frozen=True)
class Family(Spans):
    """All words of a family.

    Attributes:
        family: One of `FAMILIES`.
    """

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


def _numbers(words: Sequence[TextWord]) -> list[Span]:
    return [word.span for word in words if any(each.isdigit() for each in word.text)]


def _punctuation(words: Sequence[TextWord]) -> list[Span]:
    return [word.span for word in outside_markers(words) if is_punctuation(word.text)]


def _markers(words: Sequence[TextWord]) -> list[Span]:
    return [marker.span for marker in markers_of(words)]


def _of_pieces(words: Sequence[TextWord]) -> list[Span]:
    return [word.span for word in outside_markers(words) if len(word.ids) > 1]


def _capitalised(words: Sequence[TextWord]) -> list[Span]:
    return [word.span for word in words if word.text[:1].isupper()]


def _repeated(words: Sequence[TextWord]) -> list[Span]:
    return [
        after.span for before, after in pairwise(words) if before.text == after.text and not is_punctuation(after.text)
    ]


FAMILIES: dict[str, Callable[[Sequence[TextWord]], list[Span]]] = {
    "numbers": _numbers,
    "punctuation": _punctuation,
    "links, mentions, tags and dates": _markers,
    "rare or misspelt words": _of_pieces,
    "capitalised words": _capitalised,
    "repeated words": _repeated,
}
"""The words of each family among those of a text. Rare words are those that a tokenizer cuts into pieces."""
