"""A phrase: words that stand side by side, wherever they do; one word, or several phrases, are one, too."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Int

from lrptrain.cues.association import alternatives, covering, joined
from lrptrain.cues.cue import FEWEST, Batch, Role
from lrptrain.cues.segment import STOPS
from lrptrain.cues.text_words import TextWord
from lrptrain.cues.texts import Language, Span, Spans, TextPart, kept_in, parts_of

Words = tuple[tuple[int, ...], ...]
"""Words by the ids of their tokens."""
LONGEST = 32
"""So many words a phrase has at most: a choice, for time, as a template or a footer is found by its first ones. Half or
twice as many change no name (`python -m experiments.benchmark.moved`)."""
NAMED = 4
"""So many phrases of a list are in its name: a choice of words alone."""
ENDS = 0.75
"""Words of which at least such a share stand at an end of their text are words of an end: a
choice of what people call so."""
_SPACED = re.compile(r" [.,;:!?]")
"""Punctuation that people write without a space before it."""


@dataclass(frozen=True)
class Phrase(Spans):
    """Phrases wherever they stand."""

    kind: ClassVar[str] = "phrase"
    phrases: tuple[Words, ...] = ()

    @property
    def is_several(self) -> bool:
        """See `Cue`."""
        return len(self.phrases) > 1

    def spans(self, words: Sequence[TextWord]) -> list[Span]:
        """See `Spans`."""
        return occurrences(words, self.phrases)


def occurrences(words: Sequence[TextWord], phrases: Sequence[Words]) -> list[Span]:
    """Return where phrases stand among words, of several at a place the longest, none in another."""
    ids = [word.ids for word in words]
    longest_first = sorted(phrases, key=len, reverse=True)
    found: list[Span] = []
    place = 0
    while place < len(ids):
        match = next((each for each in longest_first if tuple(ids[place : place + len(each)]) == each), ())
        if match:
            found.append((words[place].span[0], words[place + len(match) - 1].span[1]))
        place += max(len(match), 1)
    return found


def propose_phrases(
    batch: Batch, answers: Int[np.ndarray, " batch"], language: Language, role: Role, where: TextPart, count: int
) -> Iterator[tuple[float, Phrase]]:
    """Yield the phrases whose being there goes furthest with an answer, and the best lists of alternatives."""
    recurring = _recurring(*_pieces(batch, language, where))
    keys, found = list(recurring), list(recurring.values())
    if not keys:
        return
    present = np.zeros((len(keys), len(answers)), bool)
    for number, each in enumerate(found):
        present[number, list(each.texts)] = True
    of_answer = [answers == answer for answer in np.unique(answers)]
    by_answer = [covering(present, is_answer) for is_answer in of_answer]
    for score, number in sorted((each for ranked in by_answer for each in ranked), key=lambda each: -each[0])[:count]:
        yield score, Phrase(_named([found[number].text]), role, language, where, (keys[number],))
    # Where every text has one of two words, neither decides alone; of names, or units, each is in few texts.
    kinds = [each.kind for each in found]
    lists = [
        alternatives(present, kinds, is_answer, [number for _, number in ranked[:count]])
        for is_answer, ranked in zip(of_answer, by_answer, strict=True)
        if ranked
    ]
    for several in joined(lists, present, kinds, of_answer)[: count // 2]:
        phrases = [keys[each] for each in several]
        # What is named in full is the same cue in whatever order either half finds it.
        phrases = sorted(phrases) if len(phrases) <= NAMED else phrases
        yield 0.0, Phrase(_named([recurring[each].text for each in phrases]), role, language, where, tuple(phrases))


def _named(phrases: Sequence[str]) -> str:
    """Return what phrases are called: the first of them, shortened."""
    quoted = []
    for text in phrases[:NAMED]:
        words = text.split()
        short = text if len(words) <= 8 else f"{' '.join(words[:4])} ... {' '.join(words[-3:])}"
        quoted.append(f'"{short}"' if "'" in short else f"'{short}'")
    more = f" and {len(phrases) - NAMED} more" if len(phrases) > NAMED else ""
    if len(phrases) > 1:
        return f"the words {', '.join(quoted)}{more}"
    return f"the {'phrase' if ' ' in phrases[0] else 'word'} {quoted[0]}"


def _pieces(batch: Batch, language: Language, where: TextPart) -> tuple[list[list[list[TextWord]]], list[set[int]]]:
    """Return the words of each text, in pieces that no phrase reaches over, and where its parts begin and end."""
    read = parts_of(batch, language)
    kept = kept_in(batch, read)
    texts: list[list[list[TextWord]]] = []
    for row, parts in enumerate(read):
        texts.append([])
        for part in parts:
            texts[-1].append([])
            for word in part.words:
                if where == "outside" and kept[row, slice(*word.span)].any():
                    texts[-1].append([])
                else:
                    texts[-1][-1].append(word)
    return texts, [{place for part in parts for place in (part.tokens[0], part.tokens[-1] + 1)} for parts in read]


class _Found(NamedTuple):
    """A phrase: its words, which texts hold it, and whether each occurrence stands at an end of its text."""

    text: str
    texts: set[int]
    at_ends: list[bool]

    @property
    def kind(self) -> str:
        """What it is an alternative to: another sentence, other words at an end of texts, or other words anywhere."""
        if self.text[-1:] in STOPS and any(map(str.isalnum, self.text)):
            return "sentence"
        return "at an end" if float(np.mean(self.at_ends)) >= ENDS else "anywhere"


def _recurring(texts: Sequence[Sequence[Sequence[TextWord]]], ends: Sequence[set[int]]) -> dict[Words, _Found]:
    """Return the phrases of several texts, the longest of the same texts (closed patterns, Pasquier et al. 1999)."""
    found: dict[Words, _Found] = {}
    for size in range(1, LONGEST + 1):
        level: dict[Words, _Found] = {}
        for number, text in enumerate(texts):
            for words in text:
                ids = [word.ids for word in words]
                for start in range(len(words) - size + 1):
                    key = tuple(ids[start : start + size])
                    if size == 1 or (key[:-1] in found and key[1:] in found):
                        part = words[start : start + size]
                        if key not in level:
                            read = "".join(f"{' ' if word.space else ''}{word.text}" for word in part)
                            level[key] = _Found(read if _SPACED.match(read) else read.strip(), set(), [])
                        level[key].texts.add(number)
                        level[key].at_ends.append(not ends[number].isdisjoint((part[0].span[0], part[-1].span[1])))
        level = {key: each for key, each in level.items() if len(each.texts) >= FEWEST}
        if not level:
            break
        for key, each in level.items():
            for shorter in (key[:-1], key[1:]):
                if shorter in found and found[shorter].texts == each.texts:
                    del found[shorter]
        found.update(level)
    return found
