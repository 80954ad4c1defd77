"""From saved runs to the table of README.md."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from experiments.fixes.arms import BARE_LINE, BOUND, DRO, LINE, OUTSIDE, PLAIN
from experiments.parallel import Run
from experiments.table import markdown, mean_interval

Measure = Callable[[Run], float]


def table(runs: Sequence[Run], arms: Sequence[str]) -> str:
    """Every arm: how right, on images and on texts; intervals are over cases, of which seeds are averaged first."""
    rows = []
    for arm in arms:
        row = {"training": arm}
        for kind, some in (("images", [x for x in runs if x["task"] != "texts"]), ("texts", _texts(runs))):
            row[f"in distribution, {kind}"] = _mean(some, _of(arm, "in distribution"))
            row[f"another class's mark, {kind}"] = _mean(some, _of(arm, "other"))
            row[f"minus plain, {kind}"] = "" if arm == PLAIN else _mean(some, _minus(arm, PLAIN))
            told = [x for x in some if x["correlation"] < 1]
            row[f"minus group DRO where that can help, {kind}"] = "" if arm == DRO else _mean(told, _minus(arm, DRO))
        advised = [bool(x["arms"][arm]["swapped"]) for x in runs]
        row["runs with advice"] = f"{sum(advised)} of {len(runs)}" if any(advised) else ""
        rows.append(row)
    return markdown(rows)


def closed(runs: Sequence[Run], arms: Sequence[str]) -> str:
    """Every arm: how right, how much of the gap to the upper bound it closes, and what it costs without a mark.

    The gap is that of the means over cases: of a case whose gap is small, a share says nothing.
    """
    rows = []
    for arm in arms:
        row = {"training": arm}
        for kind, some in (("images", [x for x in runs if x["task"] != "texts"]), ("texts", _texts(runs))):
            row[f"another class's mark, {kind}"] = _mean(some, _of(arm, "other"))
            gap, gained = (np.mean([_minus(each, PLAIN)(x) for x in some]) if some else 0.0 for each in (BOUND, arm))
            row[f"of the gap, {kind}"] = f"{gained / gap:.0%}" if arm not in (PLAIN, BOUND) and gap > 0 else ""
            row[f"without a mark, minus plain, {kind}"] = "" if arm == PLAIN else _mean(some, _bare_minus(arm, PLAIN))
        advised = [bool(x["arms"][arm]["swapped"]) for x in runs]
        row["runs with a line"] = f"{sum(advised)} of {len(runs)}" if any(advised) else ""
        rows.append(row)
    return markdown(rows)


def every_line(runs: Sequence[Run]) -> str:
    """Every run: accuracies with another class's mark, and the lines."""
    rows = []
    for run in sorted(runs, key=lambda x: (x["task"] == "texts", x["kind"])):
        arms = run["arms"]
        row = {"case": f"{run['kind']}, {run['task']}", "share": f"{run['correlation']:g}"}
        row |= {arm: f"{arms[arm]['other']:.2f}" for arm in (PLAIN, OUTSIDE, LINE, BARE_LINE, BOUND)}
        lines = [arms[arm]["swapped"] for arm in (LINE, BARE_LINE)]
        row |= dict(
            zip(("line, annotated", "line, not annotated"), (f"`{x[0]}`" if x else "" for x in lines), strict=True)
        )
        rows.append(row)
    return markdown(rows)


def spread(runs: Sequence[Run], arms: Sequence[str]) -> str:
    """Standard deviations in points: of seeds within a case, pooled, and of the cases' means."""
    rows = []
    for arm in arms:
        row = {"training": arm}
        for kind, some in (("images", [x for x in runs if x["task"] != "texts"]), ("texts", _texts(runs))):
            for name, measure in (("another class's mark", _of(arm, "other")), ("minus plain", _minus(arm, PLAIN))):
                cases = _by_case(some, measure)
                within = np.mean([np.var(x, ddof=1) for x in cases]) ** 0.5
                between = np.std([np.mean(x) for x in cases], ddof=1)
                is_other = arm != PLAIN or name != "minus plain"
                row[f"{name}, {kind}"] = f"{within:.0f}; {between:.0f}" if is_other else ""
        rows.append(row)
    return markdown(rows)


def _texts(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run["task"] == "texts"]


def _of(arm: str, name: str) -> Measure:
    return lambda run: run["arms"][arm][name]


def _minus(arm: str, other: str) -> Measure:
    return lambda run: run["arms"][arm]["other"] - run["arms"][other]["other"]


def _bare_minus(arm: str, other: str) -> Measure:
    return lambda run: run["arms"][arm]["without a mark"] - run["arms"][other]["without a mark"]


def _mean(runs: Sequence[Run], measure: Measure) -> str:
    """Percent, with the half width of the interval over cases."""
    cases = _by_case(runs, measure)
    if len(cases) < 2:
        return ""
    mean, half = mean_interval([float(np.mean(values)) for values in cases])
    return f"{mean:.0f} ± {half:.0f}"


def _by_case(runs: Sequence[Run], measure: Measure) -> list[list[float]]:
    """Percents of every seed, a list a case."""
    cases = defaultdict(list)
    for run in runs:
        cases[run["task"], run["kind"]].append(100 * measure(run))
    return list(cases.values())
