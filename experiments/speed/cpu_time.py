"""What does a map cost over a training pass, in CPU seconds of one process? For a machine that does other work, too.

    .venv/bin/python -m experiments.speed.cpu_time

A training pass is measured before and after each map, and the map is set over the mean of the two. Other processes
stretch both alike; what they take of caches and memory is still in the numbers.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from experiments.records import made_on
from experiments.speed.cells import Work
from experiments.speed.run import MODELS
from experiments.speed.works import TRAINING, work_of
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "cpu_time.json"
START, END = "<!-- cpu time -->", "<!-- end of cpu time -->"
# The batch of each: what is compared with other libraries at batch 1 takes minutes at 8.
ENTRIES = {
    "rollout": 8,
    "generic_attention": 8,
    "input_x_gradient": 8,
    "captum InputXGradient": 8,
    "attnlrp": 8,
    "epsilon_lrp": 8,
    "gamma_lrp": 8,
    "transformer_attribution": 8,
    "integrated_gradients": 1,
    "captum IntegratedGradients, 32 steps": 1,
}


def cpu_seconds(work: Work) -> float:
    """CPU time of one call, of all threads of the process."""
    started = time.process_time()
    work()
    return time.process_time() - started


def ratio(work: Work, base: Work, rounds: int) -> list[float]:
    """Of every round, the work over the base before and after it."""
    base()
    work()
    ratios = []
    before = cpu_seconds(base)
    for _ in range(rounds):
        mine = cpu_seconds(work)
        after = cpu_seconds(base)
        ratios.append(2 * mine / (before + after))
        before = after
    return ratios


def table(found: dict[str, Any]) -> str:
    """The median over rounds, and the lowest and the highest."""
    rows = []
    for name, batch in ENTRIES.items():
        if not any(f"{title} | {name}" in found["cells"] for title in MODELS):
            continue
        row = {"method": name if " " in name else f"`{name}`", "batch": str(batch)}
        for title in MODELS:
            ratios = found["cells"].get(f"{title} | {name}")
            row[title] = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-"
        rows.append(row)
    made = found["made_on"]
    return f"{made['cpu']}, one thread, torch {made['torch']}, commit {made['commit']}.\n\n{markdown(rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--methods", nargs="+", choices=tuple(ENTRIES), default=tuple(ENTRIES))
    parser.add_argument("--write", action="store_true", help="save the numbers and write them into the README")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"cells": {}}
    found["made_on"] = made_on()
    for title in arguments.models:
        torch.manual_seed(0)
        model, inputs_of = MODELS[title]()
        for name in arguments.methods:
            inputs = inputs_of(ENTRIES[name])
            ratios = ratio(work_of(name, model, inputs), work_of(TRAINING, model, inputs), arguments.rounds)
            found["cells"][f"{title} | {name}"] = ratios
            print(title, name, [round(x, 3) for x in ratios], sep=" | ", flush=True)
            if arguments.write:
                RESULTS.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
                write_between(HERE / "README.md", table(found), START, END)


if __name__ == "__main__":
    main()
