"""What does the printed advice give back? See README.md.

    .venv/bin/python -m experiments.fixes.run [--workers 2]
    .venv/bin/python -m experiments.fixes.run --part lines [--seeds 1]
    .venv/bin/python -m experiments.fixes.run --tables    # from what is saved

Every case and seed is a line in `results/`; what was cut off goes on with what is missing.
"""

import argparse
import io
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from experiments.benchmark.asked import Row, rounded
from experiments.benchmark.cases import NO_MARK, Case, fresh, planned
from experiments.benchmark.report import uses
from experiments.benchmark.run import RESULTS as BENCHMARK
from experiments.benchmark.training import TASKS, data_of, right
from experiments.fixes.arms import ARMS, CONFIRMED, LINES, REPEATED, accuracies, arms, forms
from experiments.fixes.report import closed, every_line, spread, table
from experiments.parallel import complete, load
from experiments.table import write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "fixes.jsonl"
OF_LINES = HERE / "results" / "lines.jsonl"
JUDGED, SEED = 400, 2
"""Held-out samples that accuracies are of, and what seeds their choice: not those that are inspected."""
SEEDS = (ARMS, CONFIRMED, REPEATED)
"""What is trained with each seed."""


@dataclass(frozen=True)
class Run:
    """A case with a seed of its own; with seed 0 it is the pair of the benchmark, with another one a fresh one."""

    case: Case
    seed: int
    arms: Sequence[str]

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return f"{self.case.key} | seed {self.seed}"


def judged(run: Run) -> Row:
    """Train all arms, and return how right each is."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    case = replace(run.case, number=run.case.number + 1000 * run.seed)
    data = data_of(case)
    held_out = TASKS[case.task].samples(case, "test", JUDGED, SEED)
    related, unrelated = held_out(True), held_out(False)
    bare = TASKS[case.task].samples(replace(case, kind=NO_MARK), "test", JUDGED, SEED)(True)
    own = (forms(case, unrelated, SEED, related=False) == unrelated["label"]).numpy()
    row: Row = {"task": case.task, "kind": case.kind, "correlation": case.correlation, "arms": {}}
    started = time.monotonic()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        for name, net, swapped in arms(case, data, run.arms):
            found = {"in distribution": right(net, related).mean(), **accuracies(right(net, unrelated), own)}
            found["without a mark"] = right(net, bare).mean()
            row["arms"][name] = {**found, "swapped": swapped, "until": time.monotonic() - started}
    plain: Row = rounded(row)
    return plain


def learned(part: str = "pairs", cases: Callable[[], Sequence[Case]] = planned) -> list[Case]:
    """The cases of a part of the benchmark whose mark a model surely uses."""
    pairs = load(BENCHMARK[part])
    return [case for case in cases() if case.key in pairs and uses(pairs[case.key])]


def of_lines(seeds: int) -> list[Run]:
    """What is trained by printed lines: kinds that were drawn late first."""
    cases = [*learned("fresh", fresh), *learned()]
    return [Run(case, seed, LINES) for seed in range(seeds) for case in cases]


def texts_of_tables() -> dict[str, str]:
    """The tables of what is saved, by their marks in README.md."""
    rows = list(load(RESULTS).values())
    tables = {
        name: table([row for row in rows if names[1] in row["arms"]], names)
        for name, names in (("arms", ARMS), ("fresh", CONFIRMED), ("seeds", REPEATED))
    }
    late = {case.kind for case in fresh()}
    printed = list(load(OF_LINES).values())
    tables |= {
        name: closed([row for row in printed if (row["kind"] in late) == is_late], LINES)
        for name, is_late in (("lines, fresh kinds", True), ("lines", False))
    }
    return {**tables, "spread": spread(rows, REPEATED), "every line": every_line(printed)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, each on one core")
    parser.add_argument("--part", choices=("advice", "lines"), default="advice", help="what is trained")
    parser.add_argument("--seeds", type=int, default=3, help="of the lines: so many seeds a case")
    parser.add_argument("--tables", action="store_true", help="write README.md from what is saved")
    arguments = parser.parse_args()
    if not arguments.tables:
        if arguments.part == "lines":
            complete(OF_LINES, of_lines(arguments.seeds), judged, arguments.workers)
        else:
            cases = learned()
            runs = [Run(case, seed, names) for seed, names in enumerate(SEEDS) for case in cases]
            complete(RESULTS, runs, judged, arguments.workers)
    for name, text in texts_of_tables().items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


if __name__ == "__main__":
    main()
