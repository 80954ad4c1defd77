"""The tables of the README: every method beside the others, and who is worse than the best, surely."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.intervals import Estimate, estimate, paired, starred
from experiments.table import markdown, mean_interval

Runs = dict[str, list[dict[str, Any]]]
CRITERIA = (("images", "share"), ("texts", "share"), ("images", "order"), ("texts", "order"))
"""Detection and perturbation, on images and texts; higher is better."""
NAMED = 0.5
"""A map names the shortcut of a model if it is first in more than this share of the samples."""


def values(runs: Runs, task: str, method: str, measure: str) -> np.ndarray:
    """One number per model."""
    return np.array([run["methods"][method][measure] for run in runs[task]])


def tables(
    runs: Runs,
    costs: dict[str, Any],
    methods: Sequence[str],
    references: Sequence[str],
) -> str:
    """All tables."""
    parts = [_models(runs)]
    for task in ("images", "texts"):
        parts.append(f"**{task.capitalize()}**\n\n{_task(runs, task, costs, (*methods, *references))}")
    parts.append(f"**The rule**\n\n{_rule(runs, costs, methods)}")
    return "\n\n".join(parts)


def _models(runs: Runs) -> str:
    lines = []
    for task, of_task in runs.items():
        shown, without = (np.array([run[name] for run in of_task]) for name in ("accuracy", "accuracy without"))
        lines.append(
            f"{task}: {len(of_task)} models, right on {shown.mean():.0%} of the samples with the shortcut and on "
            f"{without.mean():.0%} without it"
        )
    return "Models. " + "; ".join(lines) + "."


def _task(runs: Runs, task: str, costs: dict[str, Any], methods: Sequence[str]) -> str:
    rows = []
    for method in methods:
        first = values(runs, task, method, "first")
        row = {"method": f"`{method}`"}
        row["share of all tokens"] = f"{values(runs, task, method, 'share of all').mean():.2f}"
        row["share on the shortcut"] = _cell(values(runs, task, method, "share"))
        row["least"] = f"{values(runs, task, method, 'share').min():.2f}"
        row["it is first"] = _cell(first)
        row["models that it names"] = f"{int((first > NAMED).sum())} of {len(first)}"
        row["mean rank"] = f"{values(runs, task, method, 'rank').mean():.1f}"
        row["perturbation"] = _cell(values(runs, task, method, "order"))
        row["time"] = _time(costs, task, method)
        rows.append(row)
    return markdown(rows)


def _rule(runs: Runs, costs: dict[str, Any], methods: Sequence[str]) -> str:
    """Per criterion the paired difference to the best method, and for each how many criteria it surely loses.

    "Worse" is the rule's word, fixed before the runs: the interval of that difference alone. A star is corrected.
    """
    rows = {method: {"method": f"`{method}`"} for method in methods}
    lost = dict.fromkeys(methods, 0)
    differences: dict[tuple[str, str, str], Estimate] = {}
    for task, measure in CRITERIA:
        of_method = {method: values(runs, task, method, measure)[:, None] for method in methods}
        best = max(methods, key=lambda name: of_method[name].mean())
        for method in methods:
            if method != best:
                differences[task, measure, method] = estimate(paired(of_method[method], of_method[best]), False)
    stars = starred(differences)
    for task, measure in CRITERIA:
        title = f"{task}: {'detection' if measure == 'share' else 'perturbation'}"
        for method in methods:
            key = (task, measure, method)
            if key not in differences:
                rows[method][title] = "best"
                continue
            mean, half, _ = differences[key]
            surely = mean + half < 0
            lost[method] += surely
            rows[method][title] = f"{mean:+.3f} ± {half:.3f}{' worse' if surely else ''}{' *' * (key in stars)}"
    for method in methods:
        rows[method]["surely worse in"] = f"{lost[method]} of {len(CRITERIA)}"
        rows[method]["time, images / texts"] = " / ".join(_time(costs, task, method) for task in ("images", "texts"))
    return markdown([rows[method] for method in sorted(methods, key=lambda name: lost[name])])


def _time(costs: dict[str, Any], task: str, method: str) -> str:
    """A dash where it was not measured."""
    return f"{costs[task][method]:.2f}" if method in costs.get(task, {}) else "-"


def _cell(column: np.ndarray) -> str:
    return "{:.2f} ± {:.2f}".format(*mean_interval(column))
