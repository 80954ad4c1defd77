"""Runs in parallel processes, saved one by one, and what is chosen among them."""

import json
import os
from collections.abc import Callable, Sequence
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


def complete(path: Path, tasks: Sequence[Task], train: Callable[[Task], dict[str, float]], workers: int) -> dict[str, Run]:
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


def chosen_weight(runs: Sequence[Run]) -> float:
    """The rule, fixed beforehand: the lowest reliance among the weights within 2 points of the best accuracy.

    Both on a validation split that still has the shortcut; reliance under the fill, on which no arm is trained.
    """
    best = max(run["accuracy"] for run in runs)
    fit = [run for run in runs if run["accuracy"] >= best - TOLERATED]
    return min(fit, key=lambda run: run["reliance, fill"])["weight"]


def ranked(runs: Sequence[Run], arms: Sequence[str]) -> list[str]:
    """Guided arms by the reliance of their chosen weight, the lowest first, on the runs that served to choose it."""
    mine = {}
    for arm in arms:
        own = [run for run in runs if run["choosing"] and run["arm"] == arm]
        mine[arm] = next(run for run in own if run["weight"] == chosen_weight(own))
    return sorted(arms, key=lambda arm: mine[arm]["reliance, fill"])
