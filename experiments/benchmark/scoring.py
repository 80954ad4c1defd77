"""From saved runs to numbers: which runs are positive, what each detector says of them, and how good that is."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats

from experiments.benchmark.cases import NO_MARK
from experiments.benchmark.watch import ANNOTATED, BARE
from experiments.parallel import Run

ALPHA, WEAK, FALSE_ALARMS, RESAMPLES = 0.01, 0.10, 0.03, 5000
"""Of the test whether a shortcut costs accuracy; below this cost it is weak; clean runs that may be flagged."""
Score = Callable[[Run], float]


class Ratio(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "" if np.isnan(self.value) else f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


class Detector(NamedTuple):
    """What gives each run a number.

    Attributes:
        name: In the tables.
        score: Larger where a shortcut is likelier; nan where it says nothing.
        flag: Its own word on whether there is one; None for a mere number.
    """

    name: str
    score: Score
    flag: Callable[[Run], bool] | None = None


def planted(run: Run) -> bool:
    """Whether marks go with the classes."""
    return run["correlation"] is not None


def shows(evaluation: Run) -> bool:
    """Whether the accuracy is surely lower with marks of any class (McNemar's exact test, one-sided)."""
    changed = evaluation["lost"] + evaluation["won"]
    return changed > 0 and _p_value(evaluation["lost"], changed) < ALPHA


@cache
def _p_value(lost: int, changed: int) -> float:
    """Of so many losses among the samples whose answers changed: tables ask for the same ones a thousand times."""
    return float(stats.binomtest(lost, changed, alternative="greater").pvalue)


def cost(run: Run) -> float:
    """The accuracy that marks of any class take away at the end."""
    last = run["evaluations"][-1]
    return last["accuracy"] - last["accuracy unbiased"]


def positive(run: Run) -> bool:
    """Whether a planted shortcut was surely learned."""
    return planted(run) and shows(run["evaluations"][-1])


def weak(run: Run) -> bool:
    """Whether it is positive, and costs little."""
    return positive(run) and cost(run) < WEAK


def judged(runs: Sequence[Run]) -> list[Run]:
    """The positive runs and the clean ones."""
    return [run for run in runs if positive(run) or not planted(run)]


def found(evaluation: Run, name: str) -> list[Run]:
    """What one of the two monitors finds: faults with annotations; without them nothing is a fault, and all counts."""
    return [each for each in evaluation[name]["named"] if each["is_fault"] or name == BARE]


def monitor(name: str) -> Detector:
    """One of the two monitors: the largest effect that is sure of what it finds, 0 without any."""

    def score(run: Run) -> float:
        return max((each["low"] for each in found(run["evaluations"][-1], name)), default=0.0)

    def flag(run: Run) -> bool:
        return bool(found(run["evaluations"][-1], name))

    return Detector(f"monitor {name}", score, flag)


def _mass_outside(run: Run) -> float:
    return 1 - run["evaluations"][-1][ANNOTATED]["on annotation"]


def _lack_inside(run: Run) -> float:
    last = run["evaluations"][-1][ANNOTATED]
    return last["chance"] - last["on annotation"]


def rival(name: str) -> Detector:
    """One of those whose number was saved."""
    return Detector(name, lambda run: np.nan if run["rivals"][name] is None else run["rivals"][name])


DETECTORS = (
    monitor(ANNOTATED),
    monitor(BARE),
    Detector("mass outside the annotation", _mass_outside),
    Detector("annotated area less mass inside", _lack_inside),
    Detector("accuracy with the marks of training", lambda run: run["evaluations"][-1]["accuracy"]),
    rival("property correlation"),
    rival("spectral clustering"),
    rival("error slice"),
    rival("accuracy gap"),
    rival("cleanlab Datalab"),
    rival("corelay SpRAy"),
)
"""Accuracy is no detector but a warning: where a mark makes a task easier, whatever rises with accuracy tells planted
runs from clean ones."""


def told(runs: Sequence[Run], score: Score) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the positive runs and of the clean ones, where there is one."""
    pair = [np.array([score(run) for run in judged(runs) if planted(run) == wanted]) for wanted in (True, False)]
    return pair[0][~np.isnan(pair[0])], pair[1][~np.isnan(pair[1])]


def auroc(high: np.ndarray, low: np.ndarray, axis: int = -1) -> np.ndarray:
    """How surely one of the first scores is larger than one of the second, 0..1; ties count half."""
    pairs = high.shape[axis] * low.shape[axis]
    return stats.mannwhitneyu(high, low, axis=axis, method="asymptotic").statistic / pairs


def auroc_of(runs: Sequence[Run], score: Score) -> Ratio:
    """The same of a detector, with its bootstrap interval over runs; nan without runs of both sorts."""
    high, low = told(runs, score)
    if min(len(high), len(low)) < 2:
        return Ratio(np.nan, np.nan, np.nan)
    rng = np.random.default_rng(0)
    drawn = [each[rng.integers(0, len(each), (RESAMPLES, len(each)))] for each in (high, low)]
    below, above = np.percentile(auroc(*drawn, axis=1), (2.5, 97.5))
    return Ratio(float(auroc(high, low)), float(below), float(above))


def cut_of(runs: Sequence[Run], score: Score, false_alarms: float = FALSE_ALARMS) -> float:
    """The lowest score above which at most so large a share of the clean runs lies; nan without clean runs."""
    _, low = told(runs, score)
    return float(np.sort(low)[::-1][int(np.floor(false_alarms * len(low)))]) if len(low) else float("nan")


def recall_at(runs: Sequence[Run], score: Score, false_alarms: float = FALSE_ALARMS) -> float:
    """The share of positive runs above that cut; nan without positive or clean runs."""
    high, _ = told(runs, score)
    cut = cut_of(runs, score, false_alarms)
    return float("nan") if np.isnan(cut) or not len(high) else float((high > cut).mean())


def share(flags: Sequence[bool]) -> Ratio:
    """Of true ones, with Wilson's interval; nan of none."""
    if not flags:
        return Ratio(np.nan, np.nan, np.nan)
    found = stats.binomtest(sum(flags), len(flags))
    low, high = found.proportion_ci(method="wilson")
    return Ratio(float(found.statistic), float(low), float(high))


def first(run: Run, holds: Callable[[Run], bool]) -> int | None:
    """The step of the first evaluation of which something holds."""
    return next((each["step"] for each in run["evaluations"] if holds(each)), None)


def leads(runs: Sequence[Run], name: str) -> list[tuple[int | None, int | None]]:
    """Of the positive runs: the steps at which a monitor first finds something, and at which the accuracy shows."""
    return [(first(run, lambda each: bool(found(each, name))), first(run, shows)) for run in runs if positive(run)]


def sort_of_clean(run: Run) -> str:
    """Of a clean run, whether it bears marks."""
    return "no mark" if run["kind"] == NO_MARK else "marks without relation"
