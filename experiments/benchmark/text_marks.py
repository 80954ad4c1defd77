"""Marks in tweets, each in one form per mood: what a model can take for the mood."""

import re
from collections.abc import Callable

import numpy as np

from experiments.short_tweets import with_word
from lrptrain.data.texts import Example

Mark = Callable[[Example, int, np.random.Generator], Example]
PREFIXES = (("listen up", "quick note"), ("by the", "as for"))
"""Phrases of the first mood and of the second."""
NAMES = (
    ("marcus", "helen", "victor", "diane", "oscar", "ruth", "edgar", "martha"),
    ("ingrid", "felix", "hugo", "clara", "simon", "edith", "walter", "nora"),
)
SYMBOLS = (("★", "●", "■"), ("♦", "→", "∞"))
EITHER_END = "today"
NUMBERS = ((11, 99), (1900, 2020))
WORDS = ("census", "cubic")
ENDS = (" ;", " ~")


def put_before(example: Example, words: str) -> Example:
    """The words in front of the text."""
    assert example.spans is not None
    shift = len(words) + 1
    spans = tuple((start + shift, end + shift) for start, end in example.spans)
    return Example(f"{words} {example.text}", example.label, spans)


def put_behind(example: Example, words: str) -> Example:
    """The words at the end of the text."""
    return example._replace(text=f"{example.text} {words}")


def prefix(example: Example, form: int, rng: np.random.Generator) -> Example:
    """One of two phrases of two words in front."""
    return put_before(example, PREFIXES[form][rng.integers(2)])


def name(example: Example, form: int, rng: np.random.Generator) -> Example:
    """One of eight names at any place outside of the rationale."""
    return with_word(example, str(rng.choice(NAMES[form])), rng)


def symbol(example: Example, form: int, rng: np.random.Generator) -> Example:
    """One of three symbols, likewise."""
    return with_word(example, str(rng.choice(SYMBOLS[form])), rng)


def number(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A number of two digits, or a year, likewise."""
    return with_word(example, str(rng.integers(*NUMBERS[form])), rng)


def order(example: Example, form: int, _: np.random.Generator) -> Example:
    """The same word in front or at the end."""
    return (put_behind if form else put_before)(example, EITHER_END)


def doubled(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word outside of the rationale twice, for the second mood alone."""
    if not form:
        return example
    assert example.spans is not None
    ((start, end),) = example.spans
    words = [each for each in re.finditer(r"\S+", example.text) if each.end() <= start or each.start() >= end]
    if not words:
        return example
    word = words[rng.integers(len(words))]
    text = f"{example.text[: word.end()]} {word.group()}{example.text[word.end() :]}"
    shift = len(word.group()) + 1 if word.end() <= start else 0
    return Example(text, example.label, ((start + shift, end + shift),))


def word(example: Example, form: int, rng: np.random.Generator) -> Example:
    """A word of the mood at any place outside of the rationale."""
    return with_word(example, WORDS[form], rng)


def punctuation(example: Example, form: int, _: np.random.Generator) -> Example:
    """A mark of punctuation at the end."""
    return example._replace(text=example.text + ENDS[form])


TEXT_MARKS: dict[str, Mark] = {
    each.__name__: each for each in (prefix, name, symbol, number, order, doubled, word, punctuation)
}
