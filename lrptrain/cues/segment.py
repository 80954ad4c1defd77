"""A segment of a text: all of its words, or its first or last ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from lrptrain.cues.cue import Cue, Role
from lrptrain.cues.text_words import TextWord
from lrptrain.cues.texts import Language, Span, Spans, TextPart

QUARTER = 0.25
"""What people call the beginning or the end of a text."""


@dataclass(frozen=True)
class Segment(Spans):
    """The words at one end of a text.

    Attributes:
        at_end: Whether it is the end, and not the beginning.
        share: Which share of the words; 0 for one word.
    """

    kind: ClassVar[str] = "segment"
    at_end: bool = False
    share: float = 0.0

    def spans(self, words: Sequence[TextWord]) -> list[Span]:
        """See `Spans`; word by word, so that what people marked among them stays."""
        count = max(1, math.ceil(self.share * len(words)))
        return [word.span for word in (words[-count:] if self.at_end else words[:count])]

    def children(self) -> Sequence[Cue]:
        """Return its first or last word."""
        name = f"the {'last' if self.at_end else 'first'} word"
        return [replace(self, name=name, share=0.0)] if self.share else []


def ends_of(role: Role, language: Language, where: TextPart = "text") -> list[Segment]:
    """Return beginning and end of texts."""
    return [
        Segment("the beginning of the text", role, language, where, False, QUARTER),
        Segment("the end of the text", role, language, where, True, QUARTER),
    ]


@dataclass(frozen=True)
class AllWords(Spans):
    """All words of a text, or those that people did not mark."""

    kind: ClassVar[str] = "words"

    def spans(self, words: Sequence[TextWord]) -> list[Span]:
        """See `Spans`."""
        return [word.span for word in words]
