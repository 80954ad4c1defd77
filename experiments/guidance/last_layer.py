"""What is a last layer worth anew? All repairs of `lrptrain.compare_repairs` on models that read a shortcut.

`python -m experiments.guidance.last_layer` makes the runs that are missing, and writes the table into README.md.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, StackDataset

import lrptrain
from experiments.command import no_options
from experiments.guidance import report
from experiments.guidance.arms import PLAIN, Arm
from experiments.guidance.benchmarks import Benchmark, benchmarks
from experiments.guidance.fitting import draw_weights, fit
from experiments.parallel import load
from experiments.records import append
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "last_layer.jsonl"
MARKS = ("<!-- last layer -->", "<!-- end of last layer -->")
SETTINGS = (("digits", 0.98), ("digits", 0.9), ("tweets", 0.98))
"""Data, and the share of samples whose shortcut is that of their class."""
SEEDS = (0, 1, 2)
HELD_OUT = 600
BATCH = 32
COLUMNS = ("accuracy", "accuracy without", "worst group")


def runs(name: str, correlation: float, seed: int) -> Iterator[dict[str, Any]]:
    """Train one model, repair it in every way by held-out samples that have the shortcut, and test each."""
    torch.set_num_threads(1)
    benchmark = benchmarks()[name]
    benchmark = replace(benchmark, setting={**benchmark.setting, "correlation": correlation})
    columns = benchmark.columns("train", correlation, seed)
    module = benchmark.module(seed, Arm())
    fit(module, benchmark.batches(columns, draw_weights(columns, Arm()), seed), benchmark.steps, 0.0, seed)
    held_out = benchmark.columns("val", correlation, seed)
    loader: DataLoader = DataLoader(StackDataset(**held_out), BATCH)  # type: ignore[arg-type]
    comparison = lrptrain.compare_repairs(module.net, loader, max_samples=HELD_OUT, seed=seed)
    yield _row(benchmark, module.net, name, correlation, PLAIN, seed)
    for way, repaired in comparison.repairs.items():
        net = deepcopy(module.net)
        repaired.apply(net)
        yield {**_row(benchmark, net, name, correlation, way, seed), "held out": repaired.after}


def _row(
    benchmark: Benchmark, net: torch.nn.Module, name: str, correlation: float, arm: str, seed: int
) -> dict[str, Any]:
    """What is saved of a model."""
    key = f"{arm} | {name} | {correlation} | seed {seed}"
    return {
        "key": key,
        "arm": arm,
        "task": name,
        "correlation": correlation,
        "seed": seed,
        **benchmark.tested(net, seed),
    }


def table(lines: Sequence[dict[str, Any]]) -> str:
    """A row per setting and arm: mean and interval over the seeds."""
    rows = []
    for name, correlation in SETTINGS:
        of_setting = [line for line in lines if (line["task"], line["correlation"]) == (name, correlation)]
        for arm in dict.fromkeys(line["arm"] for line in of_setting):
            of_arm = [line for line in of_setting if line["arm"] == arm]
            cells = {column: report.shown([line[column] for line in of_arm]) for column in COLUMNS}
            rows.append({"data": name, "correlation": str(correlation), "last layer": arm, **cells})
    return markdown(rows)


def main() -> None:
    """Make the runs that are missing, and write the table."""
    no_options(__doc__)
    for seed in SEEDS:
        for name, correlation in SETTINGS:
            if f"{PLAIN} | {name} | {correlation} | seed {seed}" not in load(RESULTS):
                for run in list(runs(name, correlation, seed)):
                    append(RESULTS, run)
    write_between(HERE / "README.md", table(list(load(RESULTS).values())), *MARKS)


if __name__ == "__main__":
    main()
