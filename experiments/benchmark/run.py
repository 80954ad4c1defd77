"""How good are detectors of shortcuts on kinds that none was developed on? See README.md.

    .venv/bin/python -m experiments.benchmark.run try                       # does everything run?
    .venv/bin/python -m experiments.benchmark.run images --rounds 3 --minutes 80
    .venv/bin/python -m experiments.benchmark.run texts --rounds 3
    .venv/bin/python -m experiments.benchmark.run tables                    # from what is saved

Every run is a line in `results/`; what was cut off goes on with what is missing.
"""

import argparse
import time
from pathlib import Path

from experiments.benchmark import report
from experiments.benchmark.cases import IMAGE_KINDS, TEXT_KINDS, Case, development, planned
from experiments.benchmark.own_code import require_packages
from experiments.benchmark.watch import watched
from experiments.parallel import load
from experiments.records import append
from experiments.table import write_between

HERE = Path(__file__).resolve().parent
TESTS = {"images": IMAGE_KINDS, "texts": TEXT_KINDS}
RESULTS = {name: HERE / "results" / f"{name}.jsonl" for name in ("development", *TESTS)}


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
    for name in TESTS:
        if runs := list(load(RESULTS[name]).values()):
            written |= {f"{name}: {table}": text for table, text in report.tables(runs).items()}
    return written


def tables() -> None:
    """Write what is saved into README.md."""
    for name, text in texts().items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("try", *TESTS, "tables"))
    parser.add_argument("--rounds", type=int, default=3, help="of 76 runs of images, of 36 of texts")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run afterwards")
    arguments = parser.parse_args()
    if arguments.step == "try":
        complete(RESULTS["development"], development(), arguments.minutes)
    if arguments.step in TESTS:
        cases = planned(TESTS[arguments.step], arguments.rounds)
        complete(RESULTS[arguments.step], cases, arguments.minutes, own_code=True)
    tables()


if __name__ == "__main__":
    main()
