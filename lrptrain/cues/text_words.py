"""The words of a text, and which of them are punctuation or markers: links, mentions, numbers and the like."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from lrptrain.render import join_words

NameTokens = Callable[[list[int]], list[str]]
Span = tuple[int, int]
"""The first token of some words, and the one behind them."""


class TextWord(NamedTuple):
    """A word of a text."""

    text: str
    ids: tuple[int, ...]
    span: Span
    space: bool


def words_among(ids: Int[np.ndarray, " tokens"], name_tokens: NameTokens) -> list[TextWord]:
    """Return the words among the content tokens of a text."""
    content = np.flatnonzero(ids >= 0)
    names: list[str | None] = [None] * len(ids)
    for index, name in zip(content.tolist(), name_tokens(ids[content].tolist()), strict=True):
        names[index] = name
    alike = [True] * len(ids)
    return [
        TextWord(word.text, tuple(ids[list(word.places)].tolist()), (word.places[0], word.places[-1] + 1), word.space)
        for word in join_words(names, alike, alike)
    ]


def is_punctuation(text: str) -> bool:
    """Return whether a word is made of nothing but punctuation and symbols, in Unicode's sense."""
    return bool(text) and all(unicodedata.category(each)[0] in "PS" for each in text)


# Tokenizers that cut words at punctuation do not tell whether a space stood there: one is allowed.
_LINK_PART = r"(?: ?[./?=&%_~-] ?[A-Za-z0-9_%~-]+| ?/)*"
_DAY, _YEAR = r"[0-3]?\d(?:st|nd|rd|th)?", r"(?:19|20)\d\d"
_MONTH = (
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_FORMS = {
    "link": rf"(?:https?|ftp) ?: ?/ ?/ ?[A-Za-z0-9_-]+{_LINK_PART}|www ?\. ?[A-Za-z0-9-]+{_LINK_PART}",
    "address": r"[A-Za-z0-9_+-]+(?: ?\. ?[A-Za-z0-9_+-]+)* ?@ ?[A-Za-z0-9-]+(?: ?\. ?[A-Za-z0-9-]+)+",
    "domain": rf"\b[A-Za-z0-9-]+ ?\. ?(?:com|org|net|edu|gov|ly)\b{_LINK_PART}",
    "mention": r"@ ?\w+(?: ?_ ?\w+)*",
    "hashtag": r"# ?\w+(?: ?_ ?\w+)*",
    "date": rf"\b\d{{1,4}} ?(?P<bar>[-/.]) ?\d{{1,2}} ?(?P=bar) ?\d{{1,4}}\b|\b{_DAY} (?:of )?{_MONTH}(?:,? {_YEAR})?"
    rf"|\b{_MONTH} (?:{_DAY}(?: ?,? {_YEAR})?|{_YEAR})\b|\b{_YEAR}(?![.,:]?\d| ?%)\b",
    "number": r"[$€£] ?\d+(?:[.,:]\d+)*|\d+(?:[.,:]\d+)*(?: ?%)?",
}
_MARKER = re.compile("|".join(f"(?P<{kind}>{form})" for kind, form in _FORMS.items()))


class Marker(NamedTuple):
    """A marker of a text: what tells where it comes from, and mostly not what it says.

    Attributes:
        kind: "link", "address", "domain", "mention", "hashtag", "date" or "number".
        span: The tokens that it is made of.
    """

    kind: str
    span: Span
    text: str


def joined(words: Sequence[TextWord]) -> tuple[str, list[int]]:
    """Return the text of words, and for each character the number of its word; a space is of the word behind it."""
    text = ""
    word_at: list[int] = []
    for number, word in enumerate(words):
        part = f" {word.text}" if word.space and text else word.text
        text += part
        word_at += [number] * len(part)
    return text, word_at


def markers_of(words: Sequence[TextWord]) -> list[Marker]:
    """Return the markers among the words of a text; a word is in one of them at most, as a whole."""
    text, word_at = joined(words)
    markers: list[Marker] = []
    for match in _MARKER.finditer(text):
        first = word_at[match.start()]
        last = word_at[match.end() - 1]
        # "b4" is a word with a digit, and no number.
        if match.lastgroup == "number" and first == last and any(each.isalpha() for each in words[first].text):
            continue
        span = (words[first].span[0], words[last].span[1])
        # Words that are split by what is no content are not joined over it.
        if span[1] - span[0] != sum(word.span[1] - word.span[0] for word in words[first : last + 1]):
            continue
        if not markers or markers[-1].span[1] <= span[0]:
            markers.append(Marker(str(match.lastgroup), span, match.group()))
    return markers


def outside_markers(words: Sequence[TextWord]) -> list[TextWord]:
    """Return the words that belong to no marker: the dots of a link are no punctuation, and a mention no name."""
    inside = [marker.span for marker in markers_of(words)]
    return [word for word in words if not any(start <= word.span[0] < stop for start, stop in inside)]
