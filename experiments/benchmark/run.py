"""How good are detectors of shortcuts on kinds that none was developed on? See README.md.

    .venv/bin/python -m experiments.benchmark.run try                       # the kinds that were developed on
    .venv/bin/python -m experiments.benchmark.run test --seeds 10 --minutes 80
    .venv/bin/python -m experiments.benchmark.run again --seeds 5           # a later monitor, on rounds of its own
    .venv/bin/python -m experiments.benchmark.run third --seeds 5           # a still later one, likewise
    .venv/bin/python -m experiments.benchmark.run texts --seeds 5           # a still later one, on texts alone
    .venv/bin/python -m experiments.benchmark.run images --seeds 10         # a still later one, on images alone
    .venv/bin/python -m experiments.benchmark.run unseen --seeds 10         # a still later one, on kinds it never saw
    .venv/bin/python -m experiments.benchmark.run seventh --seeds 10        # a still later one, on others of those
    .venv/bin/python -m experiments.benchmark.run unseen-texts --seeds 10   # a still later one, on texts it never saw
    .venv/bin/python -m experiments.benchmark.run texts-later --seeds 5     # a still later one, on those texts
    .venv/bin/python -m experiments.benchmark.run images-later --seeds 5    # a still later one, on those images
    .venv/bin/python -m experiments.benchmark.run eighth --seeds 10         # a still later one, on still others
    .venv/bin/python -m experiments.benchmark.run eighth-texts --seeds 10   # a still later one, on other texts
    .venv/bin/python -m experiments.benchmark.run ninth --seeds 5           # a still later one, on kinds unseen again
    .venv/bin/python -m experiments.benchmark.run ninth-texts --seeds 5     # and on texts, likewise
    .venv/bin/python -m experiments.benchmark.run tables                    # from what is saved

Every run is a line in `results/`; what was cut off goes on with what is missing.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from experiments.benchmark import report
from experiments.benchmark.cases import (
    SEEDS,
    Case,
    development,
    planned,
    planned_eighth,
    planned_eighth_texts,
    planned_images,
    planned_ninth,
    planned_ninth_texts,
    planned_seventh,
    planned_texts,
    planned_unseen,
    planned_unseen_texts,
)
from experiments.benchmark.own_code import require_packages
from experiments.benchmark.scoring import SCORED, WITH_OWN_CODE
from experiments.benchmark.watch import watched
from experiments.parallel import Run, load
from experiments.records import append
from experiments.table import write_between

HERE = Path(__file__).resolve().parent
FIRST = {
    "test": 0,
    "again": SEEDS,
    "third": 2 * SEEDS,
    "texts": 10 * SEEDS,
    "images": 20 * SEEDS,
    "unseen": 30 * SEEDS,
    "seventh": 40 * SEEDS,
    "unseen-texts": 50 * SEEDS,
    "texts-later": 60 * SEEDS,
    "images-later": 80 * SEEDS,
    "eighth": 90 * SEEDS,
    "eighth-texts": 100 * SEEDS,
    "ninth": 110 * SEEDS,
    "ninth-texts": 120 * SEEDS,
}
"""The first round of every test: each has rounds of its own."""
Plan = Callable[[int, int], list[Case]]
Tables = Callable[[Sequence[Run]], dict[str, str]]
SCORED_TABLES = partial(report.tables_again, detectors=SCORED)
"""Those of the tests since the seventh."""
OWN_CODE_TABLES = partial(report.tables_again, detectors=WITH_OWN_CODE)
"""Those of the tests with the rivals' own code."""
TESTS: dict[str, tuple[Plan, Tables]] = {
    "test": (planned, report.tables),
    "again": (planned, report.tables_again),
    "third": (planned, report.tables_third),
    "texts": (planned_texts, report.tables_again),
    "images": (planned_images, report.tables_of_images),
    "unseen": (planned_unseen, report.tables_again),
    "seventh": (planned_seventh, SCORED_TABLES),
    "unseen-texts": (planned_unseen_texts, SCORED_TABLES),
    "texts-later": (planned_unseen_texts, SCORED_TABLES),
    "images-later": (planned_seventh, SCORED_TABLES),
    "eighth": (planned_eighth, SCORED_TABLES),
    "eighth-texts": (planned_eighth_texts, SCORED_TABLES),
    "ninth": (planned_ninth, OWN_CODE_TABLES),
    "ninth-texts": (planned_ninth_texts, OWN_CODE_TABLES),
}
"""The runs of so many seeds of every test, from a first round on, and the tables of what is saved of them."""
RESULTS = {name: HERE / "results" / f"{name.replace('-', '_')}.jsonl" for name in ("development", *FIRST)}
ROUNDS = (
    "rounds of 28 runs; 16 in tests on images, 20 in the seventh, its later one, the eighth and the ninth, "
    "12 in the four on unseen texts"
)
"""What the command says of its option."""


def complete(path: Path, cases: list[Case], minutes: float, own_code: bool = False) -> None:
    """Do what is missing, one after the other, and begin no run after so many minutes.

    Args:
        path: Where the runs are saved.
        cases: All that there are to be.
        minutes: When to stop.
        own_code: Whether the rivals' own code says something of them, too; see `watched`.
    """
    if own_code:
        require_packages()
    found, end = load(path), time.monotonic() + 60 * minutes
    missing = [case for case in cases if case.key not in found]
    for number, case in enumerate(missing, 1):
        if time.monotonic() >= end:
            print(f"{len(missing) - number + 1} runs are left: start the command again", flush=True)
            return
        row = watched(case, own_code)
        append(path, {"key": case.key, **row})
        print(f"{number}/{len(missing)} {case.key}: {row['seconds']:.0f} s", flush=True)


def texts() -> dict[str, str]:
    """The tables of what is saved, by their marks in README.md."""
    written: dict[str, str] = {}
    for name, (_, tables_of) in TESTS.items():
        runs = list(load(RESULTS[name]).values())
        if runs:
            before = "" if name == "test" else f"{name.replace('-', ' ')}: "
            written |= {f"{before}{table}": text for table, text in tables_of(runs).items()}
    return written


def tables() -> None:
    """Write what is saved into README.md."""
    for name, text in texts().items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("try", *FIRST, "tables"))
    parser.add_argument("--seeds", type=int, default=SEEDS, help=ROUNDS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run afterwards")
    arguments = parser.parse_args()
    if arguments.step == "try":
        complete(RESULTS["development"], development(), arguments.minutes)
    if arguments.step in TESTS:
        plan, tables_of = TESTS[arguments.step]
        cases = plan(arguments.seeds, FIRST[arguments.step])
        complete(RESULTS[arguments.step], cases, arguments.minutes, tables_of is OWN_CODE_TABLES)
    tables()


if __name__ == "__main__":
    main()
