"""Masks of two digits in one image, from the digits' names: where maps must ask for a class. See README.md.

.venv/bin/python -m experiments.segment_digits.run
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.parallel import Run, complete, load
from experiments.segment_digits.figure import figure
from experiments.segment_digits.report import tables
from experiments.segment_digits.stages import Digits, segmenters, sources
from experiments.table import write_between

HERE = Path(__file__).resolve().parent

RESULTS = HERE / "results"


@dataclass(frozen=True)
class Task:
    """All of one seed."""

    seed: int

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return f"seed {self.seed}"


def measured(task: Task) -> Run:
    """Every source, the best one's refinements, and the segmenters."""
    torch.set_num_threads(1)
    digits = Digits(task.seed)
    found = sources(digits)
    return {"seed": task.seed, "sources": found, "segmenters": segmenters(digits, found)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--tables", action="store_true", help="only write the tables of what is saved")
    given = arguments.parse_args()
    path = RESULTS / "seeds.jsonl"
    runs = load(path)
    if not given.tables:
        runs = complete(path, [Task(seed) for seed in given.seeds], measured, given.workers)
    chosen = [run for run in runs.values() if run["seed"] in given.seeds]
    for name, text in tables(chosen).items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")
        print(text, end="\n\n")
    if not given.tables:
        figure(Digits(given.seeds[0]), chosen[0], HERE / "masks.png")


if __name__ == "__main__":
    main()
