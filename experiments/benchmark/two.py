"""Images with two marks: are both named, where a model relies on both?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.benchmark import images
from experiments.benchmark.asked import ANNOTATED, BARE, Row, effect_of, inspected
from experiments.benchmark.cases import IMAGE_KINDS, IMAGE_TASKS, Case
from experiments.benchmark.image_marks import STAMPS
from experiments.benchmark.images import CLASSES, HELD_OUT, TRAIN, Columns, shown
from experiments.benchmark.report import costs, found, listed
from experiments.benchmark.scenes import things
from experiments.benchmark.training import right, trained
from experiments.parallel import Run
from experiments.table import markdown

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
    net, _ = trained(two.case, samples(two, "train", TRAIN))
    held_out, look = samples(two, "test", HELD_OUT), images.look(two.case)
    known = right(net, held_out)
    row: Row = {"task": two.task, "marks": list(two.marks), "accuracy": known.mean(), "of any class": {}}
    for mark in two.marks:
        other = right(net, samples(two, "test", HELD_OUT, loose=mark))
        counts = {"lost": int((known & ~other).sum()), "won": int((other & ~known).sum())}
        row["of any class"][mark] = {"accuracy": other.mean(), **counts}
    for name in (ANNOTATED, BARE):
        report = inspected(net, held_out, two.case, look, name)
        first = [*report.faults, *report.to_review][:SHOWN]
        said = [{"cue": each.name, "effect": each.effect, "is_fault": each.is_fault} for each in first]
        for mark in two.marks if first else ():
            columns = samples(two, "test", HELD_OUT, without=mark)
            bare = inspected(net, columns, two.case, look, name, cues=[each.cue for each in first])
            for each, row_of_it in zip(first, said, strict=True):
                row_of_it[f"without {mark}"] = effect_of(bare, each.cue)
        row[name] = {"named": said}
    return row


def is_named(run: Run, name: str, mark: str) -> bool:
    """Whether something that is found is this mark: without it at most half of the effect is left."""
    return any((each[f"without {mark}"] or 0.0) <= each["effect"] / 2 for each in found(run, name))


def table(runs: Sequence[Run]) -> str:
    """A row a model, and how many of the marks that are read are named."""
    rows, read = [], []
    for run in runs:
        used = {mark: costs(counts) for mark, counts in run["of any class"].items()}
        read += [(run, mark) for mark, is_used in used.items() if is_used]
        row = {"planted": f"{' and '.join(used)}, {run['task']}", "accuracy": f"{run['accuracy']:.2f}"}
        row["the first of any class; the second"] = "; ".join(
            f"{run['of any class'][mark]['accuracy']:.2f}{'' if is_used else ' (not used)'}"
            for mark, is_used in used.items()
        )
        rows.append(row | {name: listed(run[name]["named"]) for name in (ANNOTATED, BARE)})
    counts = [f"{name} {sum(is_named(run, name, mark) for run, mark in read)}" for name in (ANNOTATED, BARE)]
    return f"{markdown(rows)}\n\nOf {len(read)} marks that are read, named: {', '.join(counts)}."
