"""How sure a mean over runs and samples is: a hierarchical bootstrap, and stars corrected for their number.

Numbers of an experiment vary from seed to seed and from sample to sample. An interval over seeds alone says nothing
about other test images, one over images alone nothing about other trainings; these have both.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

RESAMPLES = 2000
Key = TypeVar("Key", bound=Hashable)
Statistic = Callable[[Float[np.ndarray, "resamples parts"]], Float[np.ndarray, " resamples"]]


class Estimate(NamedTuple):
    """A mean over runs and samples.

    Attributes:
        mean: Over runs of the statistic of their samples.
        half: Half the width of the interval.
        p_value: Of the mean being 0, two-sided; not corrected for the number of tests.
    """

    mean: float
    half: float
    p_value: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.half:.3f}"


def first_part(totals: Float[np.ndarray, "resamples parts"]) -> Float[np.ndarray, " resamples"]:
    """The statistic of samples that are one number each: their mean."""
    return totals[:, 0]


def estimate(
    runs: Sequence[ArrayLike], same_samples: bool, statistic: Statistic = first_part, confidence: float = 0.95
) -> Estimate:
    """Return the mean over runs, with an interval over repetitions of the whole experiment: other seeds and samples.

    The standard error is that of a hierarchical bootstrap: seeds are drawn with replacement, then samples (Saravanan et
    al. 2020; with the same samples in every run they are drawn once for all, Owen 2007). Drawn weights are
    stretched by sqrt(n / (n - 1)) about 1 / n (Rao & Wu 1988), without which three seeds would have two thirds of
    their variance. As three seeds say little of their own spread, the interval is the standard error times a quantile
    of Student's t, its degrees of freedom by Satterthwaite from the two parts of the variance: 2 where seeds decide,
    the number of samples less one where samples do. What seeds and samples do together is counted more than once, so
    the interval is rather too wide than too narrow.

    With a single run it is over samples only, with single samples over runs only.

    Args:
        runs: Per seed the samples: numbers, or rows of `parts` numbers. With the same samples in every run, those that
            are nan in one are left out of all, otherwise of their run.
        same_samples: Whether all runs were measured on the same samples, in the same order: their luck is shared.
        statistic: Of the samples' mean row; the mean itself where samples are numbers.
        confidence: Share of repetitions that the interval is to cover.

    Returns:
        The estimate; `half` and `p_value` are nan where there is only one run with one sample.

    Raises:
        ValueError: If there is no sample, or `same_samples` and the runs differ in length.
    """
    samples = _defined([np.asarray(run, float) for run in runs], same_samples)
    if min(len(run) for run in samples) == 0:
        raise ValueError("a run without samples that are numbers has no mean")
    of_runs = np.array([statistic(run.mean(0, keepdims=True))[0] for run in samples])
    mean = float(of_runs.mean())
    # [resamples, runs]: the statistic of every run on drawn samples, and how much of each run is drawn.
    drawn = np.stack(
        [statistic(_weights(len(run), 0 if same_samples else seed) @ run) for seed, run in enumerate(samples)], axis=1
    )
    over_runs = of_runs.var(ddof=1) / len(samples) if len(samples) > 1 else 0.0
    if max(len(run) for run in samples) == 1:
        error = float(np.sqrt(over_runs))  # what resampling seeds alone comes to
    else:
        error = float((_weights(len(samples), len(samples)) * drawn).sum(1).std())
    over_samples = drawn.mean(1).var()
    freedom = _satterthwaite(
        (over_runs, len(samples) - 1),
        (over_samples, min(len(run) for run in samples) - 1 if same_samples else sum(len(run) - 1 for run in samples)),
    )
    if freedom == 0:
        return Estimate(mean, float("nan"), float("nan"))
    if error <= 1e-12 * max(abs(mean), 1e-300):  # rounding of equal numbers
        return Estimate(mean, 0.0, float(mean == 0))
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    return Estimate(mean, half, float(2 * stats.t.sf(abs(mean) / error, freedom)))


def holm(p_values: ArrayLike) -> Float[np.ndarray, " m"]:
    """Correct p-values for their number by the step-down method of Holm (1979), whatever their dependence.

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


def starred(estimates: Mapping[Key, Estimate], level: float = 0.05) -> set[Key]:
    """Return the estimates that differ from 0, by Holm's correction over all of them; nan counts as a test that failed.

    Args:
        estimates: Everything that one table tests.
        level: Chance of even one star too many.
    """
    keys = list(estimates)
    p_values = np.nan_to_num([estimates[key].p_value for key in keys], nan=1.0)
    return {key for key, p_value in zip(keys, holm(p_values), strict=True) if p_value <= level}


def paired(runs: Sequence[ArrayLike], others: Sequence[ArrayLike]) -> list[np.ndarray]:
    """Return the differences, sample by sample, of two measurements of the same runs.

    Raises:
        ValueError: If they do not hold the same runs and samples.
    """
    pairs = [(np.asarray(run, float), np.asarray(other, float)) for run, other in zip(runs, others, strict=True)]
    if any(run.shape != other.shape for run, other in pairs):
        raise ValueError("differences are of the same samples")
    return [run - other for run, other in pairs]


def compared(
    rows: Mapping[Key, Sequence[ArrayLike]], other: Key, same_samples: bool, digits: int = 3
) -> dict[Key, str]:
    """Return, as the cells of a column, each row less another one of the same runs and samples.

    Args:
        rows: Per row its runs, as `estimate` takes them: what both were measured on is paired.
        other: The row that the others are held against; its own cell is empty.
        same_samples: Whether all runs were measured on the same samples.
        digits: Behind the point.

    Returns:
        Per row difference and interval, with a star where it is not 0 by Holm's correction over the column.
    """
    differences = {key: estimate(paired(runs, rows[other]), same_samples) for key, runs in rows.items() if key != other}
    return dict.fromkeys(rows, "") | signed(differences, digits)


def signed(differences: Mapping[Key, Estimate], digits: int = 3) -> dict[Key, str]:
    """Return differences as the cells of a column: sign, interval, and a star by Holm's correction over the column."""
    stars = starred(differences)
    return {
        key: f"{found.mean:+.{digits}f} ± {found.half:.{digits}f}{' *' * (key in stars)}"
        for key, found in differences.items()
    }


def _defined(runs: list[np.ndarray], same_samples: bool) -> list[np.ndarray]:
    """As rows of parts, without the samples that are not numbers."""
    rows = [run[:, None] if run.ndim == 1 else run for run in runs]
    defined = [~np.isnan(run).any(1) for run in rows]
    if same_samples:
        if len({len(run) for run in rows}) > 1:
            raise ValueError("runs on the same samples have equally many")
        defined = [np.logical_and.reduce(defined)] * len(rows)
    return [run[keep] for run, keep in zip(rows, defined, strict=True)]


@lru_cache(maxsize=16)
def _weights(count: int, seed: int) -> np.ndarray:
    """`[resamples, count]`: shares of `count` things drawn with replacement, stretched to the unbiased variance."""
    if count == 1:
        return np.ones((RESAMPLES, 1))
    generator = np.random.default_rng(np.random.SeedSequence([seed, count]))
    shares = generator.multinomial(count, np.full(count, 1 / count), RESAMPLES) / count
    return 1 / count + np.sqrt(count / (count - 1)) * (shares - 1 / count)


def _satterthwaite(*parts: tuple[float, int]) -> float:
    """Degrees of freedom of a sum of variances, each with its own; 0 if nothing was repeated."""
    repeated = [(variance, freedom) for variance, freedom in parts if freedom > 0]
    if not repeated:
        return 0.0
    total = sum(variance for variance, _ in repeated)
    if total == 0:
        return float(max(freedom for _, freedom in repeated))
    return total**2 / sum(variance**2 / freedom for variance, freedom in repeated)
