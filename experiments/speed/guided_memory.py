"""What memory and CPU time does a guided step take on long sequences, over those of a plain step? See README.md.

    .venv/bin/python -m experiments.speed.guided_memory

Each cell is a process of its own, saved in `results/`; a run that was cut off goes on with what is missing.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from experiments.records import made_on
from experiments.speed import memory, run
from experiments.speed.cells import Inputs, Work, apart
from experiments.speed.guided import BATCH, OBJECTIVES, PLAIN, plain_step, step_of
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "guided_memory_cpu.json"
START, END = "<!-- guided memory -->", "<!-- end of guided memory -->"

GUIDED = tuple(name for name in OBJECTIVES if name.startswith("energy, "))
TOKENS = 2048


def in_a_batch(name: str) -> tuple[nn.Module, Inputs]:
    """A model of usual size, and a batch."""
    model, inputs_of = run.MODELS[name]()
    return model, inputs_of(BATCH)


# What a column calls it, and how the model and its inputs are made.
MODELS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    f"{name} of {TOKENS} tokens, batch 1": partial(make, TOKENS) for name, make in memory.MODELS.items()
} | {f"{name}, batch {BATCH}": partial(in_a_batch, name) for name in run.MODELS}


def cell(title: str, name: str, rounds: int) -> dict[str, Any]:
    """Bytes at the peak of a first step, and the median ratio of its CPU time to that of a plain step."""

    def measured() -> dict[str, float]:
        torch.manual_seed(0)
        model, inputs = MODELS[title]()
        return cpu_time_and_memory(step_of(name, model, inputs), partial(plain_step, model, inputs), rounds)

    return apart(measured, "cpu", threads=1)


def cpu_time_and_memory(work: Work, base: Work, rounds: int) -> dict[str, float]:
    """Bytes of all tensors at the peak of a first call; then the median of the work's CPU time over that of `base`.

    Counted by torch's allocator, so that they repeat to the byte, whatever else the machine does. The seconds are the
    process's own, in turns, so that other work counts little; none for no rounds.
    """
    found: dict[str, float] = {"bytes": peak_of_tensors(work)}
    if rounds:
        base()
        pairs = [(cpu_seconds(base), cpu_seconds(work)) for _ in range(rounds)]
        found["time"] = statistics.median(mine / theirs for theirs, mine in pairs)
        found["seconds"] = pairs[-1][1]
    return found


def peak_of_tensors(work: Work) -> int:
    """The most bytes that are allotted at a time while something runs, more than before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    assert profiled.profiler is not None
    events = profiled.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(size for _, size in changes))


def cpu_seconds(work: Work) -> float:
    """CPU time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(arguments: argparse.Namespace, found: dict[str, Any]) -> None:
    """Every missing cell."""
    cells = found.setdefault("cells", {})
    for title in arguments.models:
        for name in (PLAIN, *arguments.guidance):
            key = f"{title} | {name}"
            if key in cells:
                continue
            cells[key] = cell(title, name, arguments.rounds)
            RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            print(key, cells[key], flush=True)


def table(found: dict[str, Any]) -> str:
    """Memory and CPU time of each guidance, over those of a plain step."""
    cells = found["cells"]
    rows = []
    for name in (PLAIN, *GUIDED):
        row = {"guidance": name}
        for title in MODELS:
            one = cells.get(f"{title} | {name}", {})
            base = cells.get(f"{title} | {PLAIN}", {})
            missing = "bytes" not in one or "bytes" not in base
            row[f"{title}: memory"] = "-" if missing else f"{one['bytes'] / base['bytes']:.2f}"
            row[f"{title}: CPU time"] = f"{one['time']:.2f}" if "time" in one else "-"
        rows.append(row)
    return f"{found['cpu']}, one thread, torch {found['torch']}.\n\n{markdown(rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of CPU time; 0 for memory alone")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--guidance", nargs="+", default=GUIDED, choices=GUIDED, metavar="NAME")
    parser.add_argument("--tables-only", action="store_true", help="write the table of what is saved already")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # until the processes of the cells
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"cells": {}}
    if not arguments.tables_only:
        found |= {"cpu": made_on()["cpu"], "torch": torch.__version__}
        measure(arguments, found)
    text = table(found)
    write_between(HERE / "README.md", text, START, END)
    print(text)


if __name__ == "__main__":
    main()
