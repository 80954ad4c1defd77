"""Does a report tell what a model relies on, or how plain its data are? See README.md.

    .venv/bin/python -m experiments.benchmark.run --part try    # does everything run?
    .venv/bin/python -m experiments.benchmark.run [--part fresh|pretrained|plain|two|backgrounds] [--workers 2]
    .venv/bin/python -m experiments.benchmark.run --tables      # from what is saved

Every case of a part is a line in `results/`; what was cut off goes on with what is missing.
"""

import argparse
import io
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from experiments.benchmark import backgrounds, plain, two
from experiments.benchmark.asked import Row, asked, rounded
from experiments.benchmark.cases import Case, development, fresh, planned, pretrained
from experiments.benchmark.report import tables
from experiments.benchmark.training import CLEAN, data_of, right, trained
from experiments.parallel import complete, load
from experiments.table import write_between

HERE = Path(__file__).resolve().parent


def judged(case: Case) -> Row:
    """Train the three models of a case, and return what is said of each."""
    started = time.monotonic()
    data = data_of(case)
    row: Row = {"task": case.task, "kind": case.kind, "correlation": case.correlation}
    for name, train in data.train.items():
        net, head = trained(case, train)
        shown, unbiased = right(net, data.shown), right(net, data.unbiased)
        said = asked(net, head, data.bare if name == CLEAN else data.shown, case, data, name)
        said |= {"lost": int((shown & ~unbiased).sum()), "won": int((unbiased & ~shown).sum())}
        row[name] = {**said, "shown": shown.mean(), "unbiased": unbiased.mean()}
    return {**row, "seconds": time.monotonic() - started}


class Part(NamedTuple):
    """What is measured of what.

    Attributes:
        cases: Returns them.
        work: What is done of each.
    """

    cases: Callable[[], Sequence[Any]]
    work: Callable[[Any], Row]


PARTS = {
    "pairs": Part(planned, judged),
    "fresh": Part(fresh, judged),
    "pretrained": Part(pretrained, judged),
    "plain": Part(plain.planned, plain.judged),
    "two": Part(two.planned, two.judged),
    "backgrounds": Part(backgrounds.planned, backgrounds.judged),
    "try": Part(development, judged),
}
RESULTS = {name: HERE / "results" / f"{name}.jsonl" for name in PARTS}


def quietly(work: Callable[[Any], Row], case: Any) -> Row:
    """Do the work of a case on one thread, without what it prints; numbers of few digits."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        found: Row = rounded(work(case))
    return found


def texts() -> dict[str, str]:
    """The tables of what is saved, by their marks in README.md."""
    saved = {name: list(load(path).values()) for name, path in RESULTS.items()}
    large = {f"{name}, pretrained": text for name, text in tables(saved["pretrained"]).items()}
    large |= {f"{name}, fresh": text for name, text in tables(saved["fresh"]).items()}
    others = {each.__name__.rpartition(".")[2]: each for each in (plain, two, backgrounds)}
    return {**tables(saved["pairs"]), **large, **{name: each.table(saved[name]) for name, each in others.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, default="pairs", help='what is measured; "try" is in no table')
    parser.add_argument("--workers", type=int, default=2, help="cases at a time, each on one core")
    parser.add_argument("--tables", action="store_true", help="write README.md from what is saved")
    arguments = parser.parse_args()
    if not arguments.tables:
        part = PARTS[arguments.part]
        complete(RESULTS[arguments.part], part.cases(), partial(quietly, part.work), arguments.workers)
    for name, text in texts().items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


if __name__ == "__main__":
    main()
