"""Runs in parallel processes, saved one by one: what was cut off goes on with what is missing."""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from experiments.machine import measured_with

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
    """Do what is missing, a line of the file each, on one core each; returns all runs.

    Each line says what it was measured with, too.
    """
    found = load(path)
    missing = [task for task in tasks if task.key not in found]
    if not missing:
        return found
    path.parent.mkdir(parents=True, exist_ok=True)
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(work, task): task for task in missing}
        for done, future in enumerate(as_completed(running), 1):
            task = running[future]
            if (error := future.exception()) is not None:
                print(f"{path.stem} {done}/{len(missing)}: {task.key} failed: {error!r}", flush=True)
                continue
            found[task.key] = {"key": task.key, **future.result(), **measured_with()}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found[task.key]) + "\n")
            print(f"{path.stem} {done}/{len(missing)}: {task.key}", flush=True)
    return found
