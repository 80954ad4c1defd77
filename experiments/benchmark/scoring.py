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


def confirmed(evaluation: Run, monitor: str, faults: bool = False) -> list[Run]:
    """The confirmed findings of an evaluation, or those of them on which a gate fails."""
    return [each for each in evaluation[monitor]["confirmed"] if each["is_fault"] or not faults]


def monitor(name: str, faults: bool = False) -> Detector:
    """One of the two monitors."""

    def score(run: Run) -> float:
        return max((each["effect"] for each in confirmed(run["evaluations"][-1], name, faults)), default=0.0)

    def flag(run: Run) -> bool:
        return bool(confirmed(run["evaluations"][-1], name, faults))

    return Detector(f"monitor {name}{', faults alone' * faults}", score, flag)


def _last(name: str, number: str) -> Score:
    """What a monitor says of a run at its end: one of its numbers, nan where it has none."""

    def score(run: Run) -> float:
        value = run["evaluations"][-1][name][number]
        return np.nan if value is None else value

    return score


def numbered(name: str, number: str) -> Detector:
    """One of the two monitors by a number that says something of every run; its flag is any confirmed finding."""

    def flag(run: Run) -> bool:
        return bool(confirmed(run["evaluations"][-1], name))

    return Detector(f"monitor {name}", _last(name, number), flag)


def _mass_outside(run: Run) -> float:
    return 1 - run["evaluations"][-1][ANNOTATED]["on annotation"]


def _lack_inside(run: Run) -> float:
    last = run["evaluations"][-1][ANNOTATED]
    return last["chance"] - last["on annotation"]


def rival(name: str) -> Detector:
    """One of those whose number was saved."""
    return Detector(name, lambda run: np.nan if run["rivals"][name] is None else run["rivals"][name])


DETECTORS = (
    *(monitor(name, faults) for name in (ANNOTATED, BARE) for faults in (False, True)),
    Detector("mass outside the annotation", _mass_outside),
    Detector("annotated area less mass inside", _lack_inside),
    rival("property correlation"),
    rival("spectral clustering"),
    rival("error slice"),
    rival("accuracy gap"),
)

AGAIN = (
    numbered(ANNOTATED, "effect ratio"),
    numbered(BARE, "effect ratio"),
    monitor(ANNOTATED, faults=True),
    monitor(BARE, faults=True),
    *(each for each in DETECTORS if each.flag is None),
)
"""Those of the second test: the monitors have a number for every run; their faults alone are as before."""

SCORED = (
    numbered(ANNOTATED, "shortcut score"),
    numbered(BARE, "shortcut score"),
    *AGAIN[2:4],
    Detector("effect ratio with annotations", _last(ANNOTATED, "effect ratio")),
    Detector("effect ratio without annotations", _last(BARE, "effect ratio")),
    Detector("plain predictability", _last(BARE, "plain predictability")),
    Detector("accuracy with the marks of training", lambda run: run["evaluations"][-1]["accuracy"]),
    *AGAIN[4:],
)
"""Those of the seventh test: the monitors' number is their score, and what it is made of stands beside it.

Accuracy is no detector but a warning: where a mark makes a task easier, whatever rises with accuracy tells planted runs
from clean ones.
"""


def _earlier_score(name: str) -> Score:
    """The score as it was in the seventh and the eighth test, from the same numbers."""

    def score(run: Run) -> float:
        plain = _last(BARE, "plain predictability")(run)
        lack = _lack_inside(run) if name == ANNOTATED else 0.0
        return _last(name, "effect ratio")(run) + 8 * (plain + lack)

    return score


def _plain_data_alone(run: Run) -> float:
    """How well plain features foretell answers and labels: neither maps nor interventions, and no model of its own."""
    answers, labels = (_last(BARE, f"{what} predictability")(run) for what in ("plain", "label"))
    return float(np.sqrt(answers * labels))


WITH_OWN_CODE = (
    *SCORED[:4],
    Detector("earlier score with annotations", _earlier_score(ANNOTATED)),
    Detector("earlier score without annotations", _earlier_score(BARE)),
    *SCORED[4:7],
    Detector("label predictability", _last(BARE, "label predictability")),
    Detector("plain data alone, no maps", _plain_data_alone),
    *SCORED[7:],
    rival("cleanlab Datalab"),
    rival("corelay SpRAy"),
)
"""Those of the ninth test: with the score's earlier formula and the rivals' own code."""


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
    """Of the positive runs: the steps at which a monitor first confirms something, and at which the accuracy shows."""
    return [(first(run, lambda each: bool(confirmed(each, name))), first(run, shows)) for run in runs if positive(run)]


def sort_of_clean(run: Run) -> str:
    """Of a clean run, whether it bears marks."""
    return "no mark" if run["kind"] == NO_MARK else "marks without relation"
