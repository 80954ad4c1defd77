"""An intervention looks at a part of the samples first, and goes on only where a candidate is not settled by it.

These are the two early stops of clinical trials (Jennison & Turnbull 2000, "Group Sequential Methods"). To give up on
what surely does not matter (futility) cannot confirm anything by chance. What surely matters is confirmed early only
where the first look says so far beyond what the end would demand (Haybittle 1971; Peto et al. 1976), so that two looks
confirm by chance hardly more often than one.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lrptrain.findings.detector import get_detector
from lrptrain.findings.finding import Finding
from lrptrain.findings.statistics import bootstrap_interval, fewest_for_a_flag, sign_flip_test
from lrptrain.findings.verdicts import MIN_TESTED_SAMPLES, demanded_effect, demanded_exchange, least_that_matters
from lrptrain.intervention import Region


class Look(NamedTuple):
    """How many samples are looked at first: a share of them, in (0, 1), and never fewer than `least`.

    Of no more than `least` samples, a half is looked at first; see `FEW`.
    """

    share: float
    least: int


HALF = Look(0.5, 64)
"""Of what has no second test.

What would be lost at the worst is an effect in a few samples alone, by all of their probability. The least that can be
confirmed of 128 samples, at `min_effect=0.05`, are 7 such samples; that all of them are in the other half has a chance
of less than 1 in 100.
"""
QUARTER = Look(0.25, 32)
"""Of a place, which is removed and then exchanged, each time with another quarter looked at first.

What either of the two would show in 7 of 128 samples is missed by its own quarter in 13 of 100 cases, what both would
show by both quarters in less than 1 of 100; and an effect in 16 of them by its own in 1 of 100.
"""
OF_PROPERTY = Look(0.5, 16)
"""Of a property of whole samples, which is tested on 32 of them, and of which much is demanded in the mean.

Where it turns 6 of 32 answers for sure, which is about the least that is confirmed, no more than 1 half in 100 holds
none of them.
"""
FEW = 8
"""A half of a few samples is never smaller than this, and settles them only if none of it moved; see `UNMOVED`."""
UNMOVED = 0.2
"""A sample did not move if its effect is below this part of the least mean effect that is confirmed.

No verdict rests on fewer than `k` samples that moved where its p-value is to be `2^-k` (`fewest_for_a_flag`), and a
random half misses all of `k` samples with a chance of at most `2^-k`.
"""
CONFIDENCE = 0.99
"""The least level of the interval that has to lie below what matters.

It is never below that of verdicts, so that what is given up on is refuted by them, too.
"""
SURE = 0.999
"""The level of the interval that has to lie above what matters."""
STRICTER = 10
"""What is confirmed early has a p-value so many times below that which the end demands."""
LARGE = 0.2
"""Where so much is demanded in the mean, a few samples that do not move by as much settle it; see `is_settled`."""


def look_of(region: Region) -> Look:
    """Return how many samples of a region are looked at first."""
    if region.is_property:
        return OF_PROPERTY
    return QUARTER if region.is_place else HALF


def first_look(rows: Int[np.ndarray, " n"], count: int, seed: int, region: Region) -> Int[np.ndarray, " m"]:
    """Return which samples are tested first: a random part, all where there are few.

    Args:
        rows: The samples to test, as indices.
        count: The number of samples of the evaluation.
        seed: The seed of the choice. A sample that is tested comes as early for any region, but for places in exchange:
            those begin with the samples that come last otherwise.
        region: What is changed.
    """
    share, least = look_of(region)
    few = len(rows) <= least
    looked_at = max(FEW, math.ceil(len(rows) / 2)) if few else max(least, math.ceil(len(rows) * share))
    if len(rows) <= looked_at:
        return rows
    # Of all samples, not of the rows: the first part hardly changes where the rows do from epoch to epoch.
    keys = np.random.default_rng([seed, count]).random(count)
    keys = 1 - keys if region.exchanged else keys
    return np.sort(rows[np.argsort(keys[rows])[:looked_at]])


def is_settled(
    candidate: Finding,
    differences: Float[np.ndarray, " n"],
    region: Region,
    *,
    rows: int,
    tests: int,
    min_effect: float,
    confidence: float,
) -> bool:
    """Return whether a candidate need not be tested further: its effect surely does not matter, or surely does.

    Scopes of which the first look holds only a few samples, such as classes, are settled in three cases. They are too
    small to be confirmed among so many tests, and would not be reported otherwise. Or so much is demanded of them in
    the mean (`LARGE`), and none of five or more samples moved by that: where half of a class does, 1 look in 32 misses
    it. Or the look holds half of them, and none of it moved at all (`UNMOVED`).

    Args:
        candidate: What is tested.
        differences: Change less control of the samples of the first look; nan where one was not tested.
        region: What is changed.
        rows: The number of all samples of the candidate.
        tests: The number of tests of the evaluation, over which verdicts are corrected.
        min_effect: The least mean change of a probability that matters, in (0, 1).
        confidence: The level of verdicts, in (0, 1).
    """
    differences = differences[~np.isnan(differences)]
    matters = least_that_matters(candidate, min_effect)
    if len(differences) < look_of(region).least:
        if rows < fewest_for_a_flag(tests, confidence) and not get_detector(candidate.kind).reported_unconfirmed:
            return True
        if len(differences) >= max(FEW, rows / 2) and bool((differences < UNMOVED * matters).all()):
            return True
        return len(differences) >= MIN_TESTED_SAMPLES and matters >= LARGE and bool((differences < matters).all())
    if bootstrap_interval(differences, max(CONFIDENCE, confidence)).high < matters:
        return True
    to_confirm = (demanded_exchange if region.exchanged else demanded_effect)(candidate, min_effect)
    return _surely_matters(differences, to_confirm, tests, confidence)


def _surely_matters(differences: Float[np.ndarray, " n"], least: float, tests: int, confidence: float) -> bool:
    """Return whether the samples so far confirm an effect far beyond what verdicts demand.

    Args:
        differences: Change less control of each sample.
        least: The least mean effect that is confirmed.
        tests: The number of tests of the evaluation.
        confidence: The level of verdicts, in (0, 1).
    """
    if bootstrap_interval(differences, max(SURE, confidence)).low < least:
        return False
    # Ten times as many patterns as for a verdict, as its least p-value is to be ten times as small.
    p_value = sign_flip_test(-differences, 0.0, resamples=99_999)
    return tests * p_value <= (1 - confidence) / STRICTER
