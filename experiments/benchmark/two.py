"""Are both named, where a model reads two marks? See README.md.

.venv/bin/python -m experiments.benchmark.two [--workers 2]
.venv/bin/python -m experiments.benchmark.two --tables    # from what is saved
"""

import argparse
import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from experiments.benchmark import images
from experiments.benchmark.asked import ANNOTATED, BARE, Row, effect_of, inspected, rounded
from experiments.benchmark.cases import IMAGE_KINDS, IMAGE_TASKS, Case
from experiments.benchmark.image_marks import STAMPS
from experiments.benchmark.images import CLASSES, HELD_OUT, TRAIN, Columns, shown
from experiments.benchmark.report import ALPHA
from experiments.benchmark.scenes import things
from experiments.benchmark.training import right, trained
from experiments.parallel import Run, complete, load
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "two.jsonl"
CORRELATION = 0.9
SHOWN = 4
"""Names of a report that are looked at."""


@dataclass(frozen=True)
class Two:
    """A model of images with two marks.

    Attributes:
        task: "digits" or "photographs".
        marks: Both.
        number: Seeds everything random.
    """

    task: str
    marks: tuple[str, str]
    number: int

    @property
    def key(self) -> str:
        """Names the model in the results."""
        return f"{self.task} | {' and '.join(self.marks)}"

    @property
    def case(self) -> Case:
        """The same as a case of the benchmark, with its first mark."""
        return Case(self.task, self.marks[0], CORRELATION, self.number)


def planned() -> list[Two]:
    """Every fourth kind that is no stamp, with the one half of the list further on."""
    kinds = [kind for kind in IMAGE_KINDS if kind not in STAMPS]
    half = len(kinds) // 2
    return [
        Two(IMAGE_TASKS[place % 2], (kinds[2 * place], kinds[2 * place + half]), 700 + place)
        for place in range(half // 2 + 1)
    ]


def samples(two: Two, split: str, count: int, loose: str | None = None, without: str | None = None) -> Columns:
    """Images whose marks go with the class in `CORRELATION`: but for one of any class, and without another one."""
    seed = [two.case.randomness, int(split == "test")]
    stock = things(two.task, split)
    rows = np.random.default_rng(seed).integers(0, len(stock.labels), count)
    marks = {
        kind: shown(stock.labels[rows], None if kind == loose else CORRELATION, CLASSES, [*seed, 1 + place])
        for place, kind in enumerate(two.marks)
        if kind != without
    }
    return images.marked(two.task, split, rows, marks, np.random.default_rng([*seed, 9]))


def judged(two: Two) -> Row:
    """Train a model on both marks, and ask of what is named which mark it is."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    net, _ = trained(two.case, samples(two, "train", TRAIN))
    held_out = samples(two, "test", HELD_OUT)
    known, look = right(net, held_out), images.look(two.case)
    row: Row = {"task": two.task, "marks": list(two.marks), "accuracy": known.mean(), "of any class": {}}
    for mark in two.marks:
        other = right(net, samples(two, "test", HELD_OUT, loose=mark))
        counts = {"lost": int((known & ~other).sum()), "won": int((other & ~known).sum())}
        row["of any class"][mark] = {"accuracy": other.mean(), **counts}
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        for name in (ANNOTATED, BARE):
            named = [
                each
                for each in inspected(net, held_out, two.case, look, name).findings
                if each.is_fault or each.is_open
            ]
            row[name] = [{"cue": each.name, "effect": each.effect, "is_fault": each.is_fault} for each in named[:SHOWN]]
            for mark in two.marks:
                report = (
                    inspected(
                        net,
                        samples(two, "test", HELD_OUT, without=mark),
                        two.case,
                        look,
                        name,
                        cues=[x.cue for x in named[:SHOWN]],
                    )
                    if named
                    else None
                )
                for each, said in zip(named, row[name], strict=False):
                    said[f"without {mark}"] = effect_of(report, each.cue)
    found: Row = rounded(row)
    return found


def reads(run: Run, mark: str) -> bool:
    """Whether the model surely reads a mark: marks of any class cost it accuracy (McNemar, exact)."""
    lost, won = (run["of any class"][mark][name] for name in ("lost", "won"))
    return lost + won > 0 and float(stats.binomtest(lost, lost + won, alternative="greater").pvalue) < ALPHA


def names(run: Run, name: str, mark: str) -> list[Run]:
    """What of a report is this mark: without it at most half of the effect is left. Where it can tell, faults alone."""
    some = [each for each in run[name] if each["is_fault"] or name == BARE]
    return [each for each in some if (each[f"without {mark}"] or 0.0) <= each["effect"] / 2]


def table() -> str:
    """A row a model, and how many of the marks that are read are named."""
    runs = list(load(RESULTS).values())
    rows = []
    for run in runs:
        row = {"planted": f"{' and '.join(run['marks'])}, {run['task']}", "accuracy": f"{run['accuracy']:.2f}"}
        costs = (
            f"{run['of any class'][mark]['accuracy']:.2f}{'' if reads(run, mark) else ' (not used)'}"
            for mark in run["marks"]
        )
        row["the first of any class; the second"] = "; ".join(costs)
        for name in (ANNOTATED, BARE):
            said = (
                f"{'**' * each['is_fault']}{each['cue']}{'**' * each['is_fault']} {each['effect']:.2f}"
                for each in run[name]
            )
            row[name] = "; ".join(said)
        rows.append(row)
    read = [(run, mark) for run in runs for mark in run["marks"] if reads(run, mark)]
    counts = [f"{name} {sum(bool(names(run, name, mark)) for run, mark in read)}" for name in (ANNOTATED, BARE)]
    return f"{markdown(rows)}\n\nOf {len(read)} marks that are read, named: {', '.join(counts)}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="models at a time, each on one core")
    parser.add_argument("--tables", action="store_true", help="write README.md from what is saved")
    arguments = parser.parse_args()
    if not arguments.tables:
        complete(RESULTS, planned(), judged, arguments.workers)
    write_between(HERE / "README.md", table(), "<!-- two -->", "<!-- end of two -->")


if __name__ == "__main__":
    main()
