"""Tokens joined to the words of a text, whichever tokenizer cut them."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool
from numpy.typing import ArrayLike

# [CLS], [SEP] of BERT, <s>, </s>, <|endoftext|> of others; and punctuation that stands close to the word before it.
_SPECIAL = re.compile(r"\[[A-Z]+\]|<[^<>\s]+>")
# Which stand in the place of a word: what the text says there is content, also where its name is not known.
_PLACEHOLDERS = ("[UNK]", "<unk>", "[MASK]", "<mask>")
_CLOSING = re.compile(r"[.,!?;:%)\]}]+")
_STARTS = ("Ġ", "▁")  # of byte-level BPE (GPT-2) and of SentencePiece
# Thai, Lao, Burmese and Khmer are written without spaces between words, as the wide letters of Chinese and Japanese.
_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF))


class Word(NamedTuple):
    """A word as it is shown: one colour, its relevance the sum of its tokens'."""

    text: str
    places: tuple[int, ...]
    """Indices of its tokens in the text."""
    space: bool
    """Whether a space comes before it."""
    scored: bool
    """Whether it is coloured: neither a special token, such as `[CLS]`, nor ignored."""
    evidence: bool
    """Whether the rationale names it."""


def scored_tokens(tokens: Sequence[str | None], rationale: ArrayLike | None = None) -> Bool[np.ndarray, " tokens"]:
    """Which tokens are scored, as far as their names and the rationale tell.

    Not scored are None (padding), marks of a tokenizer (`[CLS]`, `</s>`), and tokens that the rationale ignores. What
    stands for a word (`[UNK]`, `<mask>`) is scored. A rationale that ignores every token says that there is none.

    Args:
        tokens: Tokens as the tokenizer names them.
        rationale: 1 evidence, 0 not, 255 ignored, for each token.
    """
    content = np.array([token is not None and not _is_mark(token) for token in tokens], dtype=bool)
    if rationale is None:
        return content
    ignored = np.asarray(rationale) > 1
    return content if ignored.all() else content & ~ignored


def _is_mark(token: str) -> bool:
    """Whether a token is the tokenizer's, and no part of the text."""
    return token not in _PLACEHOLDERS and _SPECIAL.fullmatch(token) is not None


def join_words(tokens: Sequence[str | None], scored: Sequence[bool], evidence: Sequence[bool]) -> list[Word]:
    """Join the pieces of words (`act ##ing`, `Ġun watch able`); punctuation stays a word of its own.

    Pieces of which one is scored, or evidence, and the next is not, are parts that stand close together: each keeps its
    own colour. So do pieces of scripts without spaces between words, where a sentence would become one.

    Args:
        tokens: Tokens as the tokenizer names them; None for padding, which is left out.
        scored: Whether each token is.
        evidence: Whether the rationale names each token.
    """
    # WordPiece (BERT) marks pieces that continue, as in "play ##ing"; byte-level BPE and SentencePiece mark the
    # starts of words, "Ġword" and "▁word". If any start is marked, the tokens are of the second kind.
    marked = any(token is not None and token.startswith(_STARTS) for token in tokens)
    in_bytes = any(token is not None and token.startswith("Ġ") for token in tokens)
    words: list[Word] = []
    group: list[int] = []

    def close() -> None:
        if group:
            first = group[0]
            is_special = bool(_SPECIAL.fullmatch(str(tokens[first])))
            after_special = bool(words) and bool(_SPECIAL.fullmatch(str(tokens[words[-1].places[0]])))
            # A special token stands apart on both sides, also where tokens do not mark the starts of words.
            space = bool(words) and (is_special or after_special or _starts_word(str(tokens[first]), marked))
            text = _printable([str(tokens[place]) for place in group], in_bytes)
            words.append(Word(text, tuple(group), space, bool(scored[first]), bool(evidence[first])))
            group.clear()

    for place, token in enumerate(tokens):
        if token is None:
            close()
            continue
        if group:
            last = group[-1]
            alike = bool(scored[place]) == bool(scored[last]) and bool(evidence[place]) == bool(evidence[last])
            if not (last == place - 1 and alike and _goes_on(str(tokens[last]), token, marked, in_bytes)):
                close()
        group.append(place)
    close()
    return words


def _starts_word(token: str, marked: bool) -> bool:
    """Whether a space belongs before the token; `marked` where the tokenizer marks the starts of words."""
    if marked:
        return token.startswith(_STARTS)
    return not token.startswith("##") and not _CLOSING.fullmatch(token)


def _goes_on(before: str, token: str, marked: bool, in_bytes: bool) -> bool:
    """Whether a token is another piece of the word that the token before it belongs to."""
    if _SPECIAL.fullmatch(token) or _SPECIAL.fullmatch(before) or _starts_word(token, marked):
        return False
    if in_bytes and not (_readable(before) and _readable(token)):
        return True  # bytes of one character, which only together are one
    last = _printable([before], in_bytes)[-1:]
    first = _printable([token], in_bytes)[:1]
    return _is_letter(last) and _is_letter(first)


def _readable(token: str) -> bool:
    """Whether the bytes that a byte-level token stands for are whole characters."""
    return _decoded(token) is not None


def _is_letter(character: str) -> bool:
    """Whether it is a letter or digit of a script that has spaces between words, or an accent of one."""
    if not character or unicodedata.east_asian_width(character) in "WF":
        return False
    if any(low <= ord(character) <= high for low, high in _UNSPACED):
        return False
    return (
        character.isalnum()
        or unicodedata.category(character).startswith("M")
        or character in "'\N{RIGHT SINGLE QUOTATION MARK}_"
    )


def _printable(tokens: Sequence[str], in_bytes: bool) -> str:
    """The text of a word: without the tokenizer's marks, and without characters that would act on a terminal."""
    text = _decoded("".join(tokens)) if in_bytes and not _SPECIAL.fullmatch(tokens[0]) else None
    if text is None:
        text = "".join(_unmarked(token) for token in tokens)
    return visible(text.replace("\n", "↵").strip(" "))


def visible(text: str) -> str:
    """Return a text with a code point, as `U+200B`, for what nobody would see, or what would act on a terminal."""
    return "".join(character if character.isprintable() else f"U+{ord(character):04X}" for character in text)


def _unmarked(token: str) -> str:
    word = token.lstrip("Ġ▁").replace("Ċ", "↵") if token[:1] in "Ġ▁Ċ" else token
    # "##ing" is "ing", but "##" alone is what the text says.
    return word[2:] if len(word) > 2 and word.startswith("##") else word


def _decoded(text: str) -> str | None:
    """What byte-level tokens stand for, as "é" for "Ã©"; None if they are no whole characters."""
    values = [_byte_values().get(character) for character in text]
    if None in values:
        return None
    try:
        return bytes(value for value in values if value is not None).decode()
    except UnicodeDecodeError:
        return None


@cache
def _byte_values() -> dict[str, int]:
    """The byte of each character of a byte-level tokenizer (GPT-2): printable bytes as they are, others from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {chr(256 + i): value for i, value in enumerate(others)}
