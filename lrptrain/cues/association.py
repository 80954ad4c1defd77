"""How far being there goes with an answer: what ranks proposals, and decides nothing."""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from jaxtyping import Bool, Float, Int

from lrptrain.cues.cue import FEWEST, MOST

Present = Bool[np.ndarray, "m n"]
"""Which samples have each of some things."""


def association(present: Bool[np.ndarray, " n"], answers: Int[np.ndarray, " n"]) -> float:
    """Return the largest standardised residual over the answers (Agresti 2002, "Categorical Data Analysis", 3.3).

    It is by how many standard deviations more of the samples with an answer have it than if both were independent.
    """
    return float(associations(present[None], answers)[0])


def associations(
    present: Bool[np.ndarray, "m n"], answers: Int[np.ndarray, " n"], answer: int | None = None
) -> Float[np.ndarray, " m"]:
    """Return the same of several; with one answer alone if it is given."""
    is_answer = (answers[:, None] == (np.unique(answers) if answer is None else [answer])).astype(float)
    share, shares = present.mean(1, keepdims=True), is_answer.mean(0)
    expected = present.sum(1, keepdims=True) * shares
    variance = expected * (1 - shares) * (1 - share)
    residual = (present.astype(float) @ is_answer - expected) / np.sqrt(np.where(variance > 0, variance, np.inf))
    largest: Float[np.ndarray, " m"] = residual.max(1)
    return largest


def covering(present: Present, is_answer: Bool[np.ndarray, " n"]) -> list[tuple[float, int]]:
    """Return what goes with an answer, and how far, each ranked among the samples that have nothing before it."""
    left = np.ones(len(is_answer), bool)
    found: list[tuple[float, int]] = []
    while is_answer[left].any() and not is_answer[left].all():
        scores = associations(present[:, left], is_answer[left].astype(int), 1)
        scores[present[:, left].sum(1) < FEWEST] = 0
        best = int(scores.argmax())
        if scores[best] <= 0:
            break
        found.append((float(scores[best]), best))
        left &= ~present[best]
    return found


def alternatives(
    present: Present, kinds: Sequence[str], is_answer: Bool[np.ndarray, " n"], first_ones: Sequence[int]
) -> tuple[float, list[int]]:
    """Return the list of alternatives that goes furthest with an answer, and how far.

    Alternatives are of one kind, no sample has two of them, and each is in at least half as many samples as the first.
    """
    scores, counts = associations(present, is_answer.astype(int), 1), present.sum(1)
    ranked = [each for each in np.argsort(-scores, kind="stable").tolist() if scores[each] > 0]
    lists = []
    for first in first_ones:
        several, held = [first], present[first]
        for each in ranked:
            is_like = kinds[each] == kinds[first] and counts[each] >= MOST * counts[first]
            if is_like and not (held & present[each]).any():
                several.append(each)
                held = held | present[each]
        lists.append((float(associations(held[None], is_answer.astype(int), 1)[0]), several))
    return max(lists, key=lambda each: (each[0], len(each[1])))


def distinct(present: Sequence[Bool[np.ndarray, " n"]], count: int) -> list[int]:
    """Return the first things that are no other view of one before them, which most of the same samples have."""
    chosen: list[int] = []
    for number, each in enumerate(present):
        others = (present[other] for other in chosen)
        if len(chosen) < count and all((each & other).sum() < MOST * (each | other).sum() for other in others):
            chosen.append(number)
    return chosen


def joined(
    lists: Sequence[tuple[float, list[int]]],
    present: Present,
    kinds: Sequence[str],
    of_answer: Sequence[Bool[np.ndarray, " n"]],
) -> list[list[int]]:
    """Return lists of alternatives as one where nearly every sample has exactly one; else several, the best first."""
    first_ones = [several[0] for _, several in lists]
    together = [each for turn in zip_longest(*(several for _, several in lists)) for each in turn if each is not None]
    counts = present[first_ones].sum(1)
    # What is in fewer samples is nothing that could be listed.
    is_odd = present[together].sum(0) != 1
    is_one = all(is_odd[is_answer].sum() < FEWEST for is_answer in of_answer)
    if (
        len(lists) > 1
        and is_one
        and len({kinds[each] for each in first_ones}) == 1
        and counts.min() >= MOST * counts.max()
    ):
        return [together]
    return [several for _, several in sorted(lists, key=lambda each: -each[0]) if len(several) > 1]
