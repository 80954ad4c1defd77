"""Does a report tell what a model reads, or how plain its data are? See README.md.

    .venv/bin/python -m experiments.benchmark.run --try       # does everything run?
    .venv/bin/python -m experiments.benchmark.run [--workers 2]
    .venv/bin/python -m experiments.benchmark.run --pretrained
    .venv/bin/python -m experiments.benchmark.run --tables    # from what is saved

Every pair is a line in `results/pairs.jsonl` or `pretrained.jsonl`; what was cut off goes on with what is missing.
"""

import argparse
import io
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from experiments.benchmark.asked import Row, asked, rounded
from experiments.benchmark.cases import Case, development, planned, pretrained
from experiments.benchmark.report import tables
from experiments.benchmark.training import CLEAN, data_of, right, trained
from experiments.parallel import complete, load
from experiments.table import write_between

HERE = Path(__file__).resolve().parent
RESULTS = {name: HERE / "results" / f"{name}.jsonl" for name in ("pairs", "pretrained", "development")}


def judged(case: Case) -> Row:
    """Train the three models of a case, and return what is said of each."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    started = time.monotonic()
    data = data_of(case)
    row: Row = {"task": case.task, "kind": case.kind, "correlation": case.correlation}
    heard = io.StringIO()
    for name, train in data.train.items():
        net, head = trained(case, train)
        shown, unbiased = right(net, data.shown), right(net, data.unbiased)
        with redirect_stdout(heard), redirect_stderr(heard):
            said = asked(net, head, data.bare if name == CLEAN else data.shown, case, data, name)
        said |= {"lost": int((shown & ~unbiased).sum()), "won": int((unbiased & ~shown).sum())}
        row[name] = {**said, "shown": shown.mean(), "unbiased": unbiased.mean()}
    plain: Row = rounded({**row, "seconds": time.monotonic() - started})
    return plain


def texts() -> dict[str, str]:
    """The tables of what is saved, by their marks in README.md."""
    small, large = (list(load(RESULTS[name]).values()) for name in ("pairs", "pretrained"))
    return {**tables(small), **{f"{name}, pretrained": text for name, text in tables(large).items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="pairs at a time, each on one core")
    parser.add_argument("--pretrained", action="store_true", help="the pairs on larger networks")
    parser.add_argument("--tables", action="store_true", help="write README.md from what is saved")
    parser.add_argument("--try", action="store_true", dest="tries", help="three pairs that no table holds")
    arguments = parser.parse_args()
    if arguments.tries:
        complete(RESULTS["development"], development(), judged, arguments.workers)
        return
    if not arguments.tables:
        name, cases = ("pretrained", pretrained()) if arguments.pretrained else ("pairs", planned())
        complete(RESULTS[name], cases, judged, arguments.workers)
    for name, text in texts().items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


if __name__ == "__main__":
    main()
