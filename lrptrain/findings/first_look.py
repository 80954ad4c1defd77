"""An intervention looks at a part of the samples first, and goes on only where a candidate may still be confirmed.

To give up on a candidate cannot confirm anything by chance: it is a non-binding stop for futility, as in clinical
trials (Jennison & Turnbull 2000, "Group Sequential Methods"). What is confirmed, or stays suspected, was tested on all
of its samples, and its effect and interval are those that it would have without a first look.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lrptrain.findings.detector import get_detector
from lrptrain.findings.finding import Finding
from lrptrain.findings.statistics import bootstrap_interval


class Look(NamedTuple):
    """How many samples are looked at first: a share of them, in (0, 1), and never fewer than `least`."""

    share: float
    least: int


FIRST_TEST = Look(0.5, 64)
"""Of a region that is tested for the first time.

What would be lost at the worst is an effect in a few samples alone, by all of their probability. The least that can be
confirmed of 128 samples, at `min_effect=0.05`, are 7 such samples; that all of them are in the other half has a chance
of less than 1 in 100.
"""
SECOND_TEST = Look(0.25, 32)
"""Of a place that is exchanged, as its removal confirmed nothing.

It is half as large, as it costs as many forward passes again. It misses all of those 7 samples in 13 of 100 cases, and
all of 32 samples, a quarter, in 2 of 100,000.
"""
CONFIDENCE = 0.99
"""The least level of the interval that has to lie below what matters.

It is never below that of verdicts, so that what is given up on is refuted by them, too.
"""


def first_look(rows: Int[np.ndarray, " n"], count: int, seed: int, look: Look = FIRST_TEST) -> Int[np.ndarray, " m"]:
    """Return which samples are tested first: a random part, all where there are few.

    Args:
        rows: The samples to test, as indices.
        count: The number of samples of the evaluation.
        seed: The seed of the choice. A sample that is tested comes as early for any region.
        look: How many they are.
    """
    looked_at = max(look.least, math.ceil(len(rows) * look.share))
    if len(rows) <= looked_at:
        return rows
    # Of all samples, not of the rows: the first part hardly changes where the rows do from epoch to epoch.
    keys = np.random.default_rng([seed, count]).random(count)
    return np.sort(rows[np.argsort(keys[rows])[:looked_at]])


def is_surely_too_small(
    candidate: Finding,
    differences: Float[np.ndarray, " n"],
    min_effect: float,
    confidence: float,
    look: Look = FIRST_TEST,
) -> bool:
    """Return whether a candidate need not be tested further, as its effect surely does not matter.

    Args:
        candidate: What is tested.
        differences: Change less control of the samples of the first look; nan where one was not tested.
        min_effect: The least mean change of a probability that matters, in (0, 1).
        confidence: The level of verdicts, in (0, 1).
        look: How many samples it takes.
    """
    if int((~np.isnan(differences)).sum()) < look.least:
        return False
    least = max(min_effect, get_detector(candidate.kind).least_effect)
    return bootstrap_interval(differences, max(CONFIDENCE, confidence)).high < least
