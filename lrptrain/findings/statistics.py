"""How sure a mean is: a bootstrap interval, a paired test, and the correction for many tests."""

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

# Resampled values held at a time, so that memory does not grow with the number of samples.
_VALUES_AT_ONCE = 2_000_000


class Interval(NamedTuple):
    """A mean with its confidence interval, in the unit of the values."""

    mean: float
    low: float
    high: float


def bootstrap_interval(
    values: Float[np.ndarray, " n"], confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Return the mean of the values with its bias-corrected and accelerated bootstrap interval (Efron 1987).

    Values that do not vary have the interval `(mean, mean)`. Below about 15 values the interval is too narrow (any
    bootstrap's is): do not let it decide alone.

    Args:
        values: One value per sample; nan is left out.
        confidence: The share of repetitions in which the interval should cover the true mean, in (0, 1).
        resamples: The number of bootstrap resamples.
        seed: The seed of the resampling: the same values give the same interval.

    Returns:
        `(mean, low, high)`; `low` and `high` are nan with fewer than two values, `mean` too with none.
    """
    values = _defined(values)
    if len(values) < 2:
        return Interval(float(values[0]) if len(values) else np.nan, np.nan, np.nan)
    mean = float(values.mean())
    spread = float(np.ptp(values))
    # The acceleration of BCa divides by the spread of the values: without any, the bounds would be nan.
    if spread <= 1e-9 * np.abs(values).max() + np.finfo(float).tiny:
        return Interval(mean, mean, mean)
    # Of one scale, so that the third powers in the correction do not underflow; the mean of the scaled values is 0.
    scaled = (values - mean) / spread
    # A matrix product: [resamples, n] @ [n], how often every value is drawn times the value.
    counts = _resampling_counts(len(values), resamples, seed)
    offsets = np.concatenate([part @ scaled for part in counts]) / len(values)
    low, high = np.quantile(offsets, _bca_levels(scaled, offsets, confidence))
    # Back to the unit of the values.
    return Interval(mean, mean + spread * float(low), mean + spread * float(high))


def sign_flip_test(
    values: Float[np.ndarray, " n"], reference: Float[np.ndarray, " n"] | float, resamples: int = 9999, seed: int = 0
) -> float:
    """Return how likely a mean this low would be if values lay above their reference as often as below it.

    A paired sign-flip permutation test, one-sided: exact where `2**n <= resamples`, random otherwise (then never below
    `1 / (resamples + 1)`).

    Args:
        values: One value per sample, such as the share of relevance inside the annotation; nan is left out.
        reference: What each is compared with, such as the annotated share of the area; one number or one per sample.
        resamples: The number of sign patterns drawn where not all are tried.
        seed: The seed of the draw.

    Returns:
        The p-value in (0, 1] that the mean lies below the reference; 1 with fewer than two values.
    """
    # `max_test` looks for means above 0, this test for means below the reference: hence the minus sign below.
    # With a single place, the largest of all places is that place's own mean, and nothing is corrected.
    differences = _defined(np.asarray(values, dtype=float) - reference)
    return float(max_test(-differences[:, None], resamples, seed)[0])


def max_test(
    differences: Float[np.ndarray, "n places"], resamples: int = 9999, seed: int = 0
) -> Float[np.ndarray, " places"]:
    """Return how likely means this high at any place would be if each sample had either sign equally often.

    The single-step max-t procedure of Westfall & Young (1993) with sign flips: corrected over all places, whatever
    their dependence, and not as strict as Holm's method where they are alike. Exact where `2**n <= resamples`, random
    otherwise (then never below `1 / (resamples + 1)`).

    Args:
        differences: The difference of every sample at every place, such as its relevance there less a reference.
        resamples: The number of sign patterns drawn where not all are tried.
        seed: The seed of the draw.

    Returns:
        The corrected p-value in (0, 1] that the mean of a place is above 0; 1 with fewer than two samples.
    """
    differences = np.asarray(differences, dtype=float)
    if len(differences) < 2:
        return np.ones(differences.shape[1])
    # The scale does not change under sign flips, so that it stands for the denominator of Student's t.
    scale = np.sqrt((differences**2).sum(0))
    scaled = differences / np.where(scale > 0, scale, 1)
    # e.g. 13 samples have 8192 patterns of signs, which are all tried; of 14 samples' patterns, 9999 are drawn.
    exact = 2 ** len(scaled) <= resamples  # of integers: a float overflows from 1024 samples on
    # [patterns, n] @ [n, places]: what every place would have under a pattern, of which only the largest is kept.
    # A place is compared with the largest of all places: that is the correction for their number.
    largest = np.concatenate([(signs @ scaled).max(1) for signs in _signs(len(scaled), resamples, seed, exact)])
    # The observed signs are one of the patterns: the margin lets that one count in spite of rounding.
    exceeded = (largest[:, None] >= scaled.sum(0) - 1e-12).sum(0)
    # Random patterns count the observed signs as one more, or a p-value could be 0 (Phipson & Smyth 2010).
    p_values: Float[np.ndarray, " places"] = (exceeded + (not exact)) / (len(largest) + (not exact))
    return p_values


def holm(p_values: ArrayLike) -> Float[np.ndarray, " m"]:
    """Correct p-values for their number by the step-down method of Holm (1979).

    A corrected value at or below alpha keeps the chance of even one false rejection among all `m` at or below alpha,
    whatever the dependence between the tests.

    Args:
        p_values: The `m` p-values of one family of tests, in [0, 1], without nan.

    Returns:
        The corrected p-values in [0, 1], in the order given.
    """
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values)
    # e.g. [0.01, 0.04, 0.03]: in ascending order times 3, 2 and 1, [0.03, 0.06, 0.04]; no corrected value may be below
    # one before it, [0.03, 0.06, 0.06]; and back in the order given, [0.03, 0.06, 0.06].
    remaining = np.arange(len(p_values), 0, -1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.maximum.accumulate(np.minimum(remaining * p_values[order], 1.0))
    return corrected


def _defined(values: ArrayLike) -> Float[np.ndarray, " m"]:
    """Return the values that are not nan."""
    numbers = np.asarray(values, dtype=float)
    defined: Float[np.ndarray, " m"] = numbers[~np.isnan(numbers)]
    return defined


def _bca_levels(
    scaled: Float[np.ndarray, " n"], offsets: Float[np.ndarray, " resamples"], confidence: float
) -> list[float]:
    """Return which quantiles of the resampled means bound the interval (Efron 1987, equations 3.9 and 7.3).

    Args:
        scaled: Values with a mean of 0.
        offsets: The means of the resamples.
        confidence: The share of repetitions in which the interval should cover the true mean, in (0, 1).
    """
    normal = NormalDist()
    # Of values such as 0 and 1 many resamples have the very mean of the sample: half of them count as below it. The
    # margin is that of rounding, so that it does not decide on which side they lie.
    below = float((offsets < -1e-12).mean() + (offsets <= 1e-12).mean()) / 2
    least = 0.5 / len(offsets)  # a bias without bound would be that of too few resamples
    bias = normal.inv_cdf(min(max(below, least), 1 - least))
    # From the jackknife, which for a mean leaves each value's distance from it.
    acceleration = float((scaled**3).sum() / (scaled**2).sum() ** 1.5 / 6)
    levels = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        corrected = bias + normal.inv_cdf(tail)
        levels.append(normal.cdf(bias + corrected / (1 - acceleration * corrected)))
    return levels


def _resampling_counts(count: int, resamples: int, seed: int) -> Iterable[Float[np.ndarray, "part n"]]:
    """Return how often each of so many values is drawn in every resample, in parts that fit into memory.

    They depend on nothing else: all scores of an evaluation share them.
    """
    if count * resamples <= _VALUES_AT_ONCE:
        return _all_resampling_counts(count, resamples, seed)
    return _drawn_counts(count, resamples, seed)


@lru_cache(maxsize=4)
def _all_resampling_counts(count: int, resamples: int, seed: int) -> tuple[Float[np.ndarray, "part n"], ...]:
    return tuple(_drawn_counts(count, resamples, seed))


def _drawn_counts(count: int, resamples: int, seed: int) -> Iterator[Float[np.ndarray, "part n"]]:
    rng = np.random.default_rng(seed)
    size = max(1, _VALUES_AT_ONCE // count)
    for start in range(0, resamples, size):
        rows = min(size, resamples - start)
        drawn = rng.integers(0, count, (rows, count))
        # e.g. of three values: the draws [0, 2, 2] are the counts [1, 0, 2]; those of the next row stand at 3, 4 and 5
        numbers = drawn + count * np.arange(rows)[:, None]
        yield np.bincount(numbers.ravel(), minlength=rows * count).reshape(rows, count).astype(float)


def _signs(count: int, resamples: int, seed: int, exact: bool) -> Iterator[Float[np.ndarray, "patterns n"]]:
    """Yield patterns of signs, part by part: all `2**count` if `exact`, else random ones.

    The bits of a pattern's number are its signs: of two values, [1, 1], [-1, 1], [1, -1] and [-1, -1].
    """
    rng = np.random.default_rng(seed)
    size = max(1, _VALUES_AT_ONCE // count)
    total = 2**count if exact else resamples
    for start in range(0, total, size):
        number = np.arange(start, min(start + size, total))
        bits = (number[:, None] >> np.arange(count)) & 1 if exact else rng.integers(0, 2, (len(number), count), np.int8)
        yield 1.0 - 2.0 * bits


def fewest_for_a_flag(tests: int, confidence: float = 0.95) -> int:
    """Return how many samples a scope needs at least to be flagged, as one of several tests (see `holm`).

    The p-value of a sign-flip test of n samples is never below 2^-n: 8 samples for one of ten classes, beside all.

    Args:
        tests: The number of tests.
        confidence: `1 - confidence` is the level of all tests together.
    """
    return math.ceil(math.log2(tests / (1 - confidence)))


def fewest_samples(moved: int, share: float, power: float = 0.8) -> int:
    """Return of how many samples at least `moved` do so, where each does with a chance of `share`.

    Args:
        moved: How many samples have to move for a verdict; see `fewest_for_a_flag`.
        share: The share of all samples that move, in (0, 1]: a mean effect of 0.3 is that of 3 in 10 that turn wholly.
        power: The least probability of so many, in (0, 1).
    """
    count = moved

    def too_few(k: int) -> float:
        return math.comb(count, k) * share**k * (1 - share) ** (count - k)

    while sum(map(too_few, range(moved))) > 1 - power:
        count += 1
    return count


def least_shortfall(count: int, spread: float, tests: int, confidence: float = 0.95, power: float = 0.8) -> float:
    """Return how far a mean has to lie below its bound to be flagged, by the normal approximation of a paired test.

    Args:
        count: The number of samples of the scope.
        spread: The standard deviation of the samples' distances from the bound.
        tests: As for `fewest_for_a_flag`.
        confidence: As for `fewest_for_a_flag`.
        power: The probability with which a mean that far below is flagged, in (0, 1).

    Returns:
        The distance, in the unit of the spread; infinity where no distance would do.
    """
    if count < fewest_for_a_flag(tests, confidence):
        return math.inf
    quantile = NormalDist().inv_cdf
    return (quantile(1 - (1 - confidence) / tests) + quantile(power)) * spread / math.sqrt(count)
