"""Masks of two things in one image from their names: where maps must ask for a class. See README.md.

.venv/bin/python -m experiments.segment_scenes.run
.venv/bin/python -m experiments.segment_scenes.run --tables    # from what is saved
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.parallel import Run, complete, load
from experiments.segment_scenes.figure import figure
from experiments.segment_scenes.report import tables
from experiments.segment_scenes.stages import BRIGHTNESS, segmenters, sources
from experiments.segment_scenes.things import Digits, Pets, Things
from experiments.table import write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "seeds.jsonl"
KINDS: dict[str, type[Things]] = {"digits": Digits, "pets": Pets}
BESIDE = {"digits": BRIGHTNESS, "pets": "rollout"}
"""What asks for no class, and sources are held against."""


@dataclass(frozen=True)
class Task:
    """All of one seed of digits or of pets."""

    kind: str
    seed: int

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return f"{self.kind}, seed {self.seed}"


def measured(task: Task) -> Run:
    """Every source, the best one's refinements, and the segmenters."""
    torch.set_num_threads(1)
    things = KINDS[task.kind](task.seed)
    found = sources(things)
    return {"kind": task.kind, "seed": task.seed, "sources": found, "segmenters": segmenters(things, found)}


def texts() -> dict[str, str]:
    """The tables of what is saved, by their marks in README.md."""
    runs = load(RESULTS).values()
    by_kind = {kind: [run for run in runs if run["kind"] == kind] for kind in KINDS}
    return {
        f"{kind}, {name}": text for kind, some in by_kind.items() for name, text in tables(some, BESIDE[kind]).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tables", action="store_true", help="only write the tables of what is saved")
    arguments = parser.parse_args()
    if not arguments.tables:
        runs = complete(RESULTS, [Task(kind, seed) for kind in KINDS for seed in range(3)], measured, arguments.workers)
        figure(Digits(0), runs[Task("digits", 0).key], HERE / "digits.png")
    for name, text in texts().items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


if __name__ == "__main__":
    main()
