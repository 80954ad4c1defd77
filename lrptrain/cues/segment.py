"""A segment of a text: all of its words, or its first or last ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from lrptrain.cues.cue import QUARTER, Cue, Role
from lrptrain.cues.text_words import TextWord
from lrptrain.cues.texts import Language, Span, Spans, TextPart

Unit = Literal["part", "sentence", "word"]
STOPS = frozenset(".!?…。！？")  # noqa: RUF001  full stops of other scripts are meant


@dataclass(frozen=True)
class Segment(Spans):
    """The words at one end of a text.

    Attributes:
        at_end: Whether it is the end, and not the beginning.
        unit: One word; a sentence, of which a text of one sentence has none; or a part, which is a sentence, and a
            quarter of all words at least.
    """

    kind: ClassVar[str] = "segment"
    is_position: ClassVar[bool] = True
    at_end: bool = False
    unit: Unit = "part"

    def spans(self, words: Sequence[TextWord]) -> list[Span]:
        """See `Spans`; word by word, so that what people marked among them stays."""
        count = min(1, len(words)) if self.unit == "word" else self._sentence(words)
        if self.unit == "part":
            count = max(count, math.ceil(QUARTER * len(words)))
        return [word.span for word in (words[len(words) - count :] if self.at_end else words[:count])]

    def children(self) -> Sequence[Cue]:
        """Return its first or last sentence and word."""
        units: tuple[Unit, ...] = ("sentence", "word") if self.unit == "part" else ()
        return [replace(self, name=f"the {'last' if self.at_end else 'first'} {unit}", unit=unit) for unit in units]

    def _sentence(self, words: Sequence[TextWord]) -> int:
        """Return how many words the sentence has; 0 if it is the only one. "Mr." ends one, too."""
        starts = [i + 1 for i, word in enumerate(words[:-1]) if set(word.text) <= STOPS]
        if not starts:
            return 0
        return len(words) - starts[-1] if self.at_end else starts[0]


def ends_of(role: Role, language: Language, where: TextPart = "text", of: str = "the text") -> list[Segment]:
    """Return beginning and end of texts, or of what else their parts are called."""
    return [
        Segment(f"the beginning of {of}", role, language, where, at_end=False),
        Segment(f"the end of {of}", role, language, where, at_end=True),
    ]


@dataclass(frozen=True)
class AllWords(Spans):
    """All words of a text, or those that people did not mark."""

    kind: ClassVar[str] = "words"
    is_rest: ClassVar[bool] = True

    def spans(self, words: Sequence[TextWord]) -> list[Span]:
        """See `Spans`."""
        return [word.span for word in words]
