"""The findings of saved runs as a detector of shortcuts, beside plain thresholds on the focus."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from experiments.detection.cases import CLEAN
from experiments.detection.watch import ANNOTATED, MAPS, MONITORS
from experiments.parallel import Run
from lrptrain.findings.detectors.focus import RelianceOutsideAnnotation

ALPHA = 0.01
"""Of the test whether the accuracy shows a shortcut."""
RESAMPLES = 5000
PLAIN = ("mass outside", "chance - mass inside")
"""Scores without statistics: relevance outside of the annotation, and how far that inside is below its area."""
Cuts = Mapping[str, Mapping[str, float]]
"""Of every plain threshold, by task."""


class Ratio(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


def planted(run: Run) -> bool:
    """Whether there is a shortcut to be found."""
    return run["shortcut"] != CLEAN


def confirmed(epoch: Run, monitor: str, by_map: bool = False) -> list[Run]:
    """The confirmed findings of an epoch; with `by_map` those alone that the map had suspected."""
    found = epoch["monitors"][monitor]["findings"]
    return [finding for finding in found if not by_map or finding["kind"] != RelianceOutsideAnnotation.kind]


def severity(run: Run, monitor: str, by_map: bool = False) -> float:
    """The largest effect of the last epoch's confirmed findings, 0 without any; those for a person to judge count."""
    return max((finding["effect"] for finding in confirmed(run["epochs"][-1], monitor, by_map)), default=0.0)


def flagged(run: Run, monitor: str, by_map: bool = False) -> bool:
    """Whether a finding is confirmed in the last epoch."""
    return bool(confirmed(run["epochs"][-1], monitor, by_map))


def plain_score(run: Run, method: str, score: str) -> float:
    """One of `PLAIN`, of the last epoch's map."""
    last = _last(run, f"{ANNOTATED} {method}")
    return (1.0 if score == "mass outside" else last["chance"]) - last["EPG"]


def _last(run: Run, monitor: str) -> Run:
    return run["epochs"][-1]["monitors"][monitor]


def plain_names() -> list[tuple[str, str, str]]:
    """Name, method and score of every plain threshold."""
    return [(f"{score}, {method}", method, score) for score in PLAIN for method in MAPS]


def chosen_cuts(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Per plain threshold and task the cut with the largest sum of sensitivity and specificity."""
    tasks = {task: [run for run in runs if run["task"] == task] for task in dict.fromkeys(run["task"] for run in runs)}
    return {
        name: {task: best_cut(mine, partial(plain_score, method=method, score=score)) for task, mine in tasks.items()}
        for name, method, score in plain_names()
    }


def best_cut(runs: Sequence[Run], score: Callable[[Run], float]) -> float:
    """Youden's, half way to the next lower score."""
    scores = [score(run) for run in runs]
    false, true, cuts = roc_curve([planted(run) for run in runs], scores, drop_intermediate=False)
    best = 1 + int(np.argmax((true - false)[1:]))  # the first flags nothing
    lower = [value for value in scores if value < cuts[best]]
    return float((cuts[best] + max(lower, default=cuts[best])) / 2)


class Detector(NamedTuple):
    """A score of runs, and when it raises a flag.

    Attributes:
        name: In the table.
        score: Higher where a shortcut is likelier.
        flag: Whether it says that there is one.
    """

    name: str
    score: Callable[[Run], float]
    flag: Callable[[Run], bool]


def detectors(cuts: Cuts) -> list[Detector]:
    """The six monitors, those with annotations once more by what the map had suspected, then the plain thresholds."""
    found = [
        Detector(name + note, *(partial(each, monitor=name, by_map=by_map) for each in (severity, flagged)))
        for by_map, note in ((False, ""), (True, ", what the map suspected"))
        for name, (kind, _) in MONITORS.items()
        if kind == ANNOTATED or not by_map
    ]
    for name, method, score in plain_names():
        options = {"method": method, "score": score, "cuts": cuts[name]}
        found.append(Detector(name, partial(margin, **options), partial(above, **options)))
    return found


def margin(run: Run, method: str, score: str, cuts: Mapping[str, float]) -> float:
    """How far a plain score is above its task's cut."""
    return plain_score(run, method, score) - cuts[run["task"]]


def above(run: Run, method: str, score: str, cuts: Mapping[str, float]) -> bool:
    """Whether it is."""
    return margin(run, method, score, cuts) >= 0


def auroc(runs: Sequence[Run], score: Callable[[Run], float]) -> float:
    """How surely a run with a shortcut scores higher than a clean one, 0..1."""
    return float(roc_auc_score([planted(run) for run in runs], [score(run) for run in runs]))


def auroc_with_interval(runs: Sequence[Run], score: Callable[[Run], float]) -> Ratio:
    """The same with its bootstrap interval over runs, planted and clean ones drawn apart.

    It is (1, 1) where both do not overlap.
    """
    pair = [[score(run) for run in runs if planted(run) == wanted] for wanted in (True, False)]
    options = {"n_resamples": RESAMPLES, "method": "percentile", "rng": np.random.default_rng(0)}
    low, high = stats.bootstrap(pair, _auroc, **options).confidence_interval
    return Ratio(auroc(runs, score), float(low), float(high))


def _auroc(high: np.ndarray, low: np.ndarray, axis: int = -1) -> np.ndarray:
    """From ranks, of many resamples at once."""
    pairs = high.shape[axis] * low.shape[axis]
    return stats.mannwhitneyu(high, low, axis=axis, method="asymptotic").statistic / pairs


def share(flags: Sequence[bool]) -> Ratio:
    """Of true ones, with Wilson's interval; nan of none."""
    if not flags:
        return Ratio(np.nan, np.nan, np.nan)
    found = stats.binomtest(sum(flags), len(flags))
    low, high = found.proportion_ci(method="wilson")
    return Ratio(found.statistic, low, high)


def precision(runs: Sequence[Run], flag: Callable[[Run], bool]) -> Ratio:
    """Share of the flagged runs that have a shortcut."""
    return share([planted(run) for run in runs if flag(run)])


def recall(runs: Sequence[Run], flag: Callable[[Run], bool]) -> Ratio:
    """Share of the runs with a shortcut that are flagged."""
    return share([flag(run) for run in runs if planted(run)])


def flag_epoch(run: Run, monitor: str) -> int | None:
    """The first with a confirmed finding."""
    return next((number for number, epoch in enumerate(run["epochs"]) if confirmed(epoch, monitor)), None)


def accuracy_epoch(run: Run) -> int | None:
    """The first in which the accuracy is surely higher with the shortcut than without it."""
    return next((number for number, epoch in enumerate(run["epochs"]) if accuracy_shows(epoch)), None)


def accuracy_shows(epoch: Run) -> bool:
    """Whether the two accuracies differ surely: the exact test of two proportions on the same samples (McNemar)."""
    changed = epoch["lost"] + epoch["won"]
    return changed > 0 and stats.binomtest(epoch["lost"], changed, alternative="greater").pvalue < ALPHA
