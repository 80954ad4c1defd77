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
    .venv/bin/python -m experiments.benchmark.run tables                    # from what is saved

Every run is a line in `results/`; what was cut off goes on with what is missing.
"""

import argparse
import time
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
    planned_seventh,
    planned_unseen,
    planned_unseen_texts,
)
from experiments.benchmark.scoring import SCORED
from experiments.benchmark.watch import watched
from experiments.parallel import load
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
}
"""The first round of every test: each has rounds of its own."""
RESULTS = {name: HERE / "results" / f"{name.replace('-', '_')}.jsonl" for name in ("development", *FIRST)}
ROUNDS = (
    "rounds of 28 runs; 16 in tests on images, 20 in the seventh, its later one and the eighth, "
    "12 in the three on unseen texts"
)
"""What the command says of its option."""


def complete(path: Path, cases: list[Case], minutes: float) -> None:
    """Do what is missing, one after the other, and begin no run after so many minutes."""
    found, end = load(path), time.monotonic() + 60 * minutes
    missing = [case for case in cases if case.key not in found]
    for number, case in enumerate(missing, 1):
        if time.monotonic() >= end:
            print(f"{len(missing) - number + 1} runs are left: start the command again", flush=True)
            return
        row = watched(case)
        append(path, {"key": case.key, **row})
        print(f"{number}/{len(missing)} {case.key}: {row['seconds']:.0f} s", flush=True)


def texts() -> dict[str, str]:
    """The tables of what is saved, by their marks in README.md."""
    written: dict[str, str] = {}
    if runs := list(load(RESULTS["test"]).values()):
        written |= report.tables(runs)
    if runs := list(load(RESULTS["again"]).values()):
        written |= {f"again: {name}": text for name, text in report.tables_again(runs).items()}
    if runs := list(load(RESULTS["third"]).values()):
        written |= {f"third: {name}": text for name, text in report.tables_third(runs).items()}
    if runs := list(load(RESULTS["texts"]).values()):
        written |= {f"texts: {name}": text for name, text in report.tables_again(runs).items()}
    if runs := list(load(RESULTS["images"]).values()):
        written |= {f"images: {name}": text for name, text in report.tables_of_images(runs).items()}
    if runs := list(load(RESULTS["unseen"]).values()):
        written |= {f"unseen: {name}": text for name, text in report.tables_again(runs).items()}
    if runs := list(load(RESULTS["seventh"]).values()):
        written |= {f"seventh: {name}": text for name, text in report.tables_again(runs, SCORED).items()}
    if runs := list(load(RESULTS["unseen-texts"]).values()):
        written |= {f"unseen texts: {name}": text for name, text in report.tables_again(runs, SCORED).items()}
    if runs := list(load(RESULTS["texts-later"]).values()):
        written |= {f"texts later: {name}": text for name, text in report.tables_again(runs, SCORED).items()}
    if runs := list(load(RESULTS["images-later"]).values()):
        written |= {f"images later: {name}": text for name, text in report.tables_again(runs, SCORED).items()}
    if runs := list(load(RESULTS["eighth"]).values()):
        written |= {f"eighth: {name}": text for name, text in report.tables_again(runs, SCORED).items()}
    if runs := list(load(RESULTS["eighth-texts"]).values()):
        written |= {f"eighth texts: {name}": text for name, text in report.tables_again(runs, SCORED).items()}
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
    if arguments.step in FIRST:
        cases = planned(arguments.seeds, FIRST[arguments.step])
        if arguments.step == "texts":
            cases = [case for case in cases if case.task == "texts"]
        if arguments.step == "images":
            cases = planned_images(arguments.seeds, FIRST["images"])
        if arguments.step == "unseen":
            cases = planned_unseen(arguments.seeds, FIRST["unseen"])
        if arguments.step in ("seventh", "images-later"):
            cases = planned_seventh(arguments.seeds, FIRST[arguments.step])
        if arguments.step in ("unseen-texts", "texts-later"):
            cases = planned_unseen_texts(arguments.seeds, FIRST[arguments.step])
        if arguments.step == "eighth":
            cases = planned_eighth(arguments.seeds, FIRST["eighth"])
        if arguments.step == "eighth-texts":
            cases = planned_eighth_texts(arguments.seeds, FIRST["eighth-texts"])
        complete(RESULTS[arguments.step], cases, arguments.minutes)
    tables()


if __name__ == "__main__":
    main()
