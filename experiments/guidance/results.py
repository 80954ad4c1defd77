"""Runs in parallel processes, saved one by one, and what is chosen among them."""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from arms import Task

Run = dict[str, Any]
CHOOSING_SEED, SEEDS = 100, (0, 1, 2, 3, 4)
TOLERATED = 0.02


def load(path: Path) -> dict[str, Run]:
    """All saved runs of a table, by key."""
    if not path.exists():
        return {}
    runs = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {run["key"]: run for run in runs}


def complete(
    path: Path, tasks: Sequence[Task], train: Callable[[Task], dict[str, float]], workers: int
) -> dict[str, Run]:
    """Train what is missing, a line of the file each; returns all runs."""
    found = load(path)
    missing = [task for task in tasks if task.key not in found]
    if not missing:
        return found
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(train, task): task for task in missing}
        for done, future in enumerate(as_completed(running), 1):
            task = running[future]
            if (error := future.exception()) is not None:
                print(f"{path.stem} {done}/{len(missing)}: {task.key} failed: {error!r}", flush=True)
                continue
            run = {"key": task.key, "arm": task.arm, "seed": task.seed, **task.setting, "weight": task.weight}
            run |= {"choosing": task.choosing, **{name: round(x, 5) for name, x in future.result().items()}}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")
            found[task.key] = run
            print(f"{path.stem} {done}/{len(missing)}: {task.key}", flush=True)
    return found


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
