"""How sure a mean or a share over samples is."""

import numpy as np
from jaxtyping import Float

from lrptrain.extras import require

RESAMPLES = 2000
_VALUES_AT_ONCE = 2_000_000


def bootstrap_interval(values: Float[np.ndarray, " n"], confidence: float) -> tuple[float, float, float]:
    """Return the mean of finite values with its bias-corrected and accelerated bootstrap interval (Efron 1987).

    Args:
        values: At least one value.
        confidence: The share of repetitions in which the interval should cover the true mean, in (0, 1).

    Returns:
        `(mean, low, high)`; of a single value low and high are nan, of values that are all the same the mean.
    """
    mean, spread = float(values.mean()), float(np.ptp(values))
    if len(values) < 2:
        return mean, np.nan, np.nan
    if spread <= 1e-9 * np.abs(values).max():
        return mean, mean, mean
    stats = require("scipy.stats", "monitor")
    # Of one scale: the third powers in the correction of tiny values would underflow.
    found = stats.bootstrap(
        ((values - mean) / spread,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        batch=max(1, _VALUES_AT_ONCE // len(values)),
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return mean, mean + spread * float(found.low), mean + spread * float(found.high)


def wilson_interval(right: int, count: int, confidence: float) -> tuple[float, float, float]:
    """Return a share with the interval of Wilson (1927), which has a width at 0 and 1, too.

    Args:
        right: The number of samples that count.
        count: The number of all samples, at least 1.
        confidence: As for `bootstrap_interval`.
    """
    # e.g. 10 of 10 right at 95 % are 1.0 with the interval 0.72 to 1.0.
    found = require("scipy.stats", "monitor").binomtest(right, count).proportion_ci(confidence, "wilson")
    return right / count, float(found.low), float(found.high)
