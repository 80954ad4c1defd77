"""Runs in parallel processes, saved one by one: what was cut off goes on with what is missing."""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from experiments.records import append, stamped

Run = dict[str, Any]


class Keyed(Protocol):
    """What a run is told to do.

    Attributes:
        key: Names the run in the results.
    """

    @property
    def key(self) -> str: ...


Task = TypeVar("Task", bound=Keyed)


def load(path: Path) -> dict[str, Run]:
    """All saved runs of a file, by key."""
    if not path.exists():
        return {}
    runs = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {run["key"]: run for run in runs}


def complete(path: Path, tasks: Sequence[Task], work: Callable[[Task], Run], workers: int) -> dict[str, Run]:
    """Do what is missing, a line of the file each, on one core each; returns all runs."""
    found = load(path)
    missing = [task for task in tasks if task.key not in found]
    if not missing:
        return found
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_done, work, task): task for task in missing}
        for done, future in enumerate(as_completed(running), 1):
            task = running[future]
            if (error := future.exception()) is not None:
                print(f"{path.stem} {done}/{len(missing)}: {task.key} failed: {error!r}", flush=True)
                continue
            found[task.key] = future.result()
            append(path, found[task.key])
            print(f"{path.stem} {done}/{len(missing)}: {task.key}", flush=True)
    return found


def _done(work: Callable[[Task], Run], task: Task) -> Run:
    """In the worker, whose number of threads the record tells."""
    return stamped({"key": task.key, **work(task)})
