"""A phrase: words that stand side by side, wherever they do; one word, or several phrases, are one, too."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from lrptrain.cues.association import associations
from lrptrain.cues.cue import CANDIDATES, FEWEST, Batch, Role
from lrptrain.cues.text_words import TextWord
from lrptrain.cues.texts import Language, Span, Spans, TextPart, kept_in, parts_of

Words = tuple[tuple[int, ...], ...]
"""Words by the ids of their tokens."""
LONGEST = 32
"""So many words a phrase has at most: a template or a footer is found by its first ones,
so that more cost time alone."""


@dataclass(frozen=True)
class Phrase(Spans):
    """Phrases wherever they stand.

    Attributes:
        phrases: The phrases.
    """

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
    """Yield the phrases whose being there goes furthest with an answer, the first of each answer together, and all.

    Args:
        batch: The texts.
        answers: The answer to each.
        language: How they are made up.
        role: The role of the phrases.
        where: In which part of texts they are looked for.
        count: How many at most, beside those that are several.
    """
    read = parts_of(batch, language)
    kept = kept_in(batch, read)
    texts: list[list[list[TextWord]]] = []
    for row, parts in enumerate(read):
        texts.append([])
        for part in parts:
            texts[-1].append([])
            for word in part.words:
                if where == "outside" and kept[row, slice(*word.span)].any():
                    texts[-1].append([])  # a phrase does not reach over what people marked
                else:
                    texts[-1][-1].append(word)
    holders, spelt = _recurring(texts)
    keys = list(holders)
    if not keys:
        return
    present = np.zeros((len(keys), len(texts)), bool)
    for number, key in enumerate(keys):
        present[number, list(holders[key])] = True
    by_answer = [_for_answer(keys, present, answers == answer) for answer in np.unique(answers)]
    ranked = sorted((each for found in by_answer for each in found), key=lambda each: -each[0])
    for score, key in ranked[:count]:
        yield score, Phrase(_named([spelt[key]]), role, language, where, (key,))
    # Where every text has one of two words, neither decides alone; of names, or units, each is in few texts.
    first_ones = sorted({found[0][1] for found in by_answer if found})  # the same ones of either half are one cue
    together = list(dict.fromkeys(key for _, key in ranked))
    for several in [tuple(first_ones), *([tuple(together)] if len(together) > len(first_ones) else [])]:
        if len(several) > 1:
            yield 0.0, Phrase(_named([spelt[each] for each in several]), role, language, where, several)


def _for_answer(
    keys: Sequence[Words], present: Bool[np.ndarray, "keys n"], is_answer: Bool[np.ndarray, " n"]
) -> list[tuple[float, Words]]:
    """Return the phrases that go with an answer, each ranked among the texts that hold none before it."""
    left = np.ones(len(is_answer), bool)
    found: list[tuple[float, Words]] = []
    while is_answer[left].any() and not is_answer[left].all():
        scores = associations(present[:, left], is_answer[left].astype(int), 1)
        scores[present[:, left].sum(1) < FEWEST] = 0
        best = int(scores.argmax())
        if scores[best] <= 0:
            break
        found.append((float(scores[best]), keys[best]))
        left &= ~present[best]
    return found


def _named(phrases: Sequence[str]) -> str:
    """Return what phrases are called: the first of them, shortened."""
    quoted = []
    for text in phrases[:CANDIDATES]:
        words = text.split()
        short = text if len(words) <= 8 else f"{' '.join(words[:4])} ... {' '.join(words[-3:])}"
        quoted.append(f'"{short}"' if "'" in short else f"'{short}'")
    more = f" and {len(phrases) - CANDIDATES} more" if len(phrases) > CANDIDATES else ""
    if len(phrases) > 1:
        return f"the words {', '.join(quoted)}{more}"
    return f"the {'phrase' if ' ' in phrases[0] else 'word'} {quoted[0]}"


def _recurring(texts: Sequence[Sequence[Sequence[TextWord]]]) -> tuple[dict[Words, set[int]], dict[Words, str]]:
    """Return the phrases that several texts hold, by which, and how they read.

    A phrase all of whose texts hold a longer one with it is that longer one (a closed pattern, Pasquier et al. 1999).
    """
    holders: dict[Words, set[int]] = {}
    spelt: dict[Words, str] = {}
    for size in range(1, LONGEST + 1):
        level: dict[Words, set[int]] = defaultdict(set)
        for number, text in enumerate(texts):
            for words in text:
                ids = [word.ids for word in words]
                for start in range(len(words) - size + 1):
                    key = tuple(ids[start : start + size])
                    if size == 1 or (key[:-1] in holders and key[1:] in holders):
                        level[key].add(number)
                        if key not in spelt:
                            part = words[start : start + size]
                            spelt[key] = "".join(f"{' ' if word.space else ''}{word.text}" for word in part).strip()
        level = {key: rows for key, rows in level.items() if len(rows) >= FEWEST}
        if not level:
            break
        for key, rows in level.items():
            for shorter in (key[:-1], key[1:]):
                if holders.get(shorter) == rows:
                    del holders[shorter]
        holders.update(level)
    return holders, spelt
