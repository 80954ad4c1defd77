"""What the arms of an experiment are compared by: a measure of each run, of single test samples where it has them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from experiments.intervals import Estimate, Statistic, estimate, first_part

Run = Mapping[str, Any]


class Measure(NamedTuple):
    """A number of a run, from its test samples: every run of an experiment has the same ones, in the same order.

    Attributes:
        name: Heads its column.
        samples: Of a run: a number per test sample, or a row of several.
        statistic: Of the samples' mean row; their mean where they are numbers.
    """

    name: str
    samples: Callable[[Run], ArrayLike]
    statistic: Statistic = first_part

    def of(self, runs: Sequence[Run]) -> Estimate:
        """The mean over runs, with an interval over seeds and samples."""
        return estimate([self.samples(run) for run in runs], same_samples=True, statistic=self.statistic)

    def difference(self, runs: Sequence[Run], others: Sequence[Run]) -> Estimate:
        """These runs less others, paired by seed and sample; seeds that only one of them has are left out.

        Raises:
            ValueError: If they have no seed in common.
        """
        by_seed = {run["seed"]: run for run in others}
        pairs = [(run, by_seed[run["seed"]]) for run in runs if run["seed"] in by_seed]
        if not pairs:
            raise ValueError("differences are of the same seeds")
        first, second = ([_rows(self.samples(run)) for run in part] for part in zip(*pairs, strict=True))
        width = first[0].shape[1]

        def difference(means: np.ndarray) -> np.ndarray:
            return self.statistic(means[:, :width]) - self.statistic(means[:, width:])

        beside = [np.hstack(pair) for pair in zip(first, second, strict=True)]
        return estimate(beside, same_samples=True, statistic=difference)

    def cell(self, runs: Sequence[Run]) -> str:
        """Mean and interval, and in brackets each seed where there are several."""
        found = self.of(runs)
        seeds = [f"{self.of([run]).mean:.2f}" for run in runs]
        return f"{found.mean:.2f} ± {found.half:.2f}" + (f" ({', '.join(seeds)})" if len(seeds) > 1 else "")


def _rows(samples: ArrayLike) -> np.ndarray:
    array = np.asarray(samples, float)
    return array[:, None] if array.ndim == 1 else array
