"""Runs of a table, and what is chosen among them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments import parallel
from experiments.guidance.arms import Task
from experiments.parallel import Run

CHOOSING_SEED, SEEDS = 100, (0, 1, 2, 3, 4)
TOLERATED = 0.02


def complete(
    path: Path, tasks: Sequence[Task], train: Callable[[Task], dict[str, Any]], workers: int
) -> dict[str, Run]:
    """Train what is missing, a line of the file each; returns all runs."""
    return parallel.complete(path, tasks, partial(_run, train), workers)


def _run(train: Callable[[Task], dict[str, Any]], task: Task) -> Run:
    """What is saved of a task."""
    run = {"arm": task.arm, "seed": task.seed, **task.setting, "weight": task.weight, "choosing": task.choosing}
    return run | {name: round(x, 5) if isinstance(x, float) else x for name, x in train(task).items()}


def least_reliance(runs: Sequence[Run]) -> Run:
    """The lowest reliance among the weights within 2 points of the best accuracy.

    Both on a validation split that still has the shortcut; reliance under the fill, on which no arm is trained.
    """
    best = max(run["accuracy"] for run in runs)
    return min((run for run in runs if run["accuracy"] >= best - TOLERATED), key=lambda run: run["reliance, fill"])


def best_filled(runs: Sequence[Run]) -> Run:
    """The highest accuracy on the same validation split with everything but the evidence filled."""
    return max(runs, key=lambda run: run["accuracy, fill"])


RULES: dict[str, Callable[[Sequence[Run]], Run]] = {"least reliance": least_reliance, "best filled": best_filled}
"""The first is the one fixed beforehand; the second was added when the first was seen to choose the weakest weights."""


def choices(runs: Iterable[Run], rule: str) -> dict[str, Run]:
    """Of every guided arm the run that the rule chooses, the best arm first."""
    own: dict[str, list[Run]] = {}
    for run in runs:
        if run["choosing"]:
            own.setdefault(run["arm"], []).append(run)
    chosen = {arm: RULES[rule](mine) for arm, mine in own.items()}
    key = "reliance, fill" if rule == "least reliance" else "accuracy, fill"
    return dict(sorted(chosen.items(), key=lambda pair: pair[1][key], reverse=rule == "best filled"))
