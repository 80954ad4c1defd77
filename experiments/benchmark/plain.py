"""Models of plain data, that nothing was planted in, trained for longer: are they called faulty?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.benchmark import images
from experiments.benchmark.asked import ANNOTATED, BARE, Row, inspected
from experiments.benchmark.cases import IMAGE_TASKS, NO_MARK, Case
from experiments.benchmark.images import HELD_OUT, TRAIN, Columns
from experiments.benchmark.report import found, listed
from experiments.benchmark.scenes import SIDE, THING, grounds, things
from experiments.benchmark.training import right, trained
from experiments.parallel import Run
from experiments.records import named
from experiments.table import markdown

STEPS = 600
"""Four times those of the pairs."""
OBJECTS = 6
"""Of each class that a video shows."""
HUES = np.array([[1.0, 0.3, 0.3], [0.3, 1.0, 0.3], [0.4, 0.4, 1.0], [1.0, 1.0, 0.3]], np.float32)
KINDS = {
    "as above": "as in the pairs",
    "colours": "things have the colour of their class",
    "scan": "things are in the middle of a black image",
    "video": f"{OBJECTS} things a class, again and again, also in what is judged",
}
SEED = 5000


@dataclass(frozen=True)
class Plain:
    """A model of plain data.

    Attributes:
        task: "digits" or "photographs".
        kind: One of `KINDS`.
        seed: Of everything random.
    """

    task: str
    kind: str
    seed: int

    @property
    def key(self) -> str:
        """Names the model in the results."""
        return f"{self.task} | {self.kind} | seed {self.seed}"

    @property
    def case(self) -> Case:
        """The same as a case of the benchmark."""
        number = 100 * self.seed + 10 * list(KINDS).index(self.kind) + IMAGE_TASKS.index(self.task)
        return Case(self.task, NO_MARK, 1.0, SEED + number)


def planned() -> list[Plain]:
    """Two models of each kind and task."""
    return [Plain(task, kind, seed) for seed in range(2) for kind in KINDS for task in IMAGE_TASKS]


def samples(plain: Plain, split: str, count: int) -> Columns:
    """Images of a split; a video's are other frames of the same things."""
    seed = plain.case.randomness
    rng = np.random.default_rng([seed, split == "test"])
    stock, behind = things(plain.task, "train" if plain.kind == "video" else split), grounds(split)
    rows = rng.integers(0, len(stock.labels), count)
    if plain.kind == "video":
        once = np.random.default_rng(seed)
        of_class = [np.flatnonzero(stock.labels == label) for label in range(len(HUES))]
        rows = rng.choice(np.concatenate([once.choice(each, OBJECTS, replace=False) for each in of_class]), count)
    found = []
    for row in rows:
        ground = behind[rng.integers(len(behind))]
        top, left = (int(x) for x in rng.integers(0, SIDE - THING + 1, 2))
        colour = stock.colours[row]
        if plain.kind == "scan":
            ground, top, left = np.zeros_like(ground), (SIDE - THING) // 2, (SIDE - THING) // 2
        if plain.kind == "colours":
            colour = colour.mean(-1, keepdims=True) * HUES[stock.labels[row]]
        found.append(images.scene({}, colour, stock.covers[row], ground, (top, left), rng))
    return images.columns(found, stock.labels[rows])


def judged(plain: Plain) -> Row:
    """Train a model, and return what is said of it with every default."""
    train, held_out = samples(plain, "train", TRAIN), samples(plain, "test", HELD_OUT)
    net, _ = trained(plain.case, train, steps=STEPS)
    row: Row = {"task": plain.task, "kind": plain.kind, "accuracy": right(net, held_out).mean()}
    for name in (ANNOTATED, BARE):
        row[name] = {"named": named(inspected(net, held_out, plain.case, images.look(plain.case), name).findings)}
    return row


def table(runs: Sequence[Run]) -> str:
    """A row a kind and task."""
    rows = []
    for kind, words in KINDS.items():
        for task in IMAGE_TASKS:
            some = [run for run in runs if (run["kind"], run["task"]) == (kind, task)]
            row = {"data": f"{task}, {words}", "accuracy": ", ".join(f"{run['accuracy']:.2f}" for run in some)}
            row["called faulty"] = f"{sum(bool(found(run, ANNOTATED)) for run in some)} of {len(some)}"
            row["named first without annotations"] = "; ".join(
                listed(found(run, BARE)[:1]) or "nothing" for run in some
            )
            rows.append(row)
    return markdown(rows)
