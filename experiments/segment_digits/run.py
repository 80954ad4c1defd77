"""Masks of two digits in one image, from the digits' names: where maps must ask for a class. See README.md.

.venv/bin/python experiments/segment_digits/run.py
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "class_specific")]

import torch  # noqa: E402
from figure import figure  # noqa: E402
from parallel import Run, complete  # noqa: E402
from report import tables  # noqa: E402
from stages import Digits, segmenters, sources  # noqa: E402
from table import write_between  # noqa: E402

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
    given = arguments.parse_args()
    runs = complete(RESULTS / "seeds.jsonl", [Task(seed) for seed in given.seeds], measured, given.workers)
    chosen = [run for run in runs.values() if run["seed"] in given.seeds]
    for name, text in tables(chosen).items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")
        print(text, end="\n\n")
    figure(Digits(given.seeds[0]), chosen[0], HERE / "masks.png")


if __name__ == "__main__":
    main()
