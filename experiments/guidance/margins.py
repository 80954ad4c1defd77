"""Does a ring that swaps keep around the evidence give the shortcut away? Digits of 32 pixels on a tint.

`python -m experiments.guidance.margins` makes the runs that are missing, and writes the table into README.md.
"""

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from experiments.command import no_options
from experiments.guidance import images
from experiments.guidance.arms import PLAIN, UPPER, Arm, Task
from experiments.guidance.fitting import Trained, draw_weights, fit
from experiments.guidance.marked import SHUFFLED, marked_digits
from experiments.guidance.measures import accuracy, logits
from experiments.guidance.results import complete, of_seeds
from experiments.parallel import Run, load
from experiments.table import markdown, write_between
from lrptrain.intervention.swap import ring_share

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "margins.jsonl"
MARKS = ("<!-- margins -->", "<!-- end of margins -->")
SIZE, STEPS, SEEDS = 32, 160, (0,)
CORRELATION = 0.98
ARMS = {
    PLAIN: Arm(),
    "swap, margin 2": Arm({"loss": "swap", "margin": 2}),
    "swap, margin 0": Arm({"loss": "swap", "margin": 0}),
    "consistency, margin 2": Arm({"loss": "consistency", "margin": 2}),
    "consistency, margin 0": Arm({"loss": "consistency", "margin": 0}),
    UPPER: Arm(clean=True),
}
WEIGHT = 10.0
"""Of `consistency`, the best on digits with a tag."""
COLUMNS = ("accuracy", "accuracy, shuffled", "accuracy without")


def train(task: Task) -> dict[str, Any]:
    """Train one model, and measure it with the tint, with a shuffled one, and without."""
    torch.set_num_threads(1)
    arm = ARMS[task.arm]
    columns = marked_digits("train", {} if arm.clean else {"around": CORRELATION}, SIZE, task.seed)
    module = Trained(images.network(task.seed, SIZE), lambda batch: {"x": batch["image"]}, arm, images.LR)
    seconds = fit(module, images.batches(columns, draw_weights(columns, arm), task.seed), STEPS, task.weight, task.seed)
    measured = {"seconds": seconds, "ring": ring_share(columns["mask"], 2)}
    settings = ({"around": CORRELATION}, {"around": SHUFFLED}, {})
    for name, correlations in zip(COLUMNS, settings, strict=True):
        data = marked_digits("test", correlations, SIZE, task.seed)
        measured[name] = accuracy(logits(module.net, data["image"]), data["label"])
    return measured


def table(runs: Sequence[Run]) -> str:
    """A row per arm: accuracy of every seed."""
    rows = []
    for arm in ARMS:
        rows.append({"arm": arm, **{name: of_seeds(runs, arm, itemgetter(name)) for name in COLUMNS}})
    return markdown(rows)


def main() -> None:
    """Make the runs that are missing, and write the table."""
    no_options(__doc__)
    tasks = [Task(arm, seed, {}, WEIGHT if arm.startswith("consistency") else 0.0) for seed in SEEDS for arm in ARMS]
    complete(RESULTS, tasks, train, 1)
    write_between(HERE / "README.md", table(list(load(RESULTS).values())), *MARKS)


if __name__ == "__main__":
    main()
