"""A tint on photographs, and no annotation: what does a swap of colour and contrast mend, and what does jitter?

`python -m experiments.guidance.tinted` makes the runs that are missing, and writes the table into README.md.
"""

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from experiments.command import no_options
from experiments.data import dataset
from experiments.detection.photographs import BLOCKS, CLASSES, CORRELATION, LR, VIT, photographs, planted
from experiments.guidance.arms import PLAIN, UPPER, Arm, Task
from experiments.guidance.fitting import Trained, draw_weights, fit
from experiments.guidance.images import batches
from experiments.guidance.measures import accuracy, logits
from experiments.guidance.results import complete, of_seeds
from experiments.parallel import Run, load
from experiments.table import markdown, write_between
from experiments.vision import MEAN, STD
from lrptrain.models import ImageClassifier

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "tinted.jsonl"
MARKS = ("<!-- tinted -->", "<!-- end of tinted -->")
STEPS, SEEDS = 150, (0,)
SHUFFLED = 1 / len(CLASSES)
ARMS = {
    PLAIN: Arm(),
    "swap of statistics": Arm({"loss": "swap", "swap": "colour"}),
    "consistency under a swap of statistics": Arm({"loss": "consistency", "swap": "colour"}),
    "consistency under a swap of statistics, weight 10": Arm({"loss": "consistency", "swap": "colour"}, (10.0,)),
    "colour jitter": Arm(rule="jitter"),
    UPPER: Arm(clean=True),
}
TESTS = {"accuracy": CORRELATION, "tint shuffled": SHUFFLED}


def columns(split: str, per_class: int, correlation: float, seed: int) -> dict[str, Tensor]:
    """Photographs with a tint, normalised, without annotations."""
    images, labels = photographs(split, per_class)
    tinted = planted(images, labels, "tint", correlation, seed)
    normalised = (tinted - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return {"image": torch.from_numpy(normalised.transpose(0, 3, 1, 2).copy()), "label": torch.from_numpy(labels)}


def train(task: Task) -> dict[str, Any]:
    """Train one model, and measure it with the tint as in training, and with a shuffled one."""
    torch.set_num_threads(1)
    pl.seed_everything(task.seed, verbose=False)
    arm = ARMS[task.arm]
    net = ImageClassifier(len(CLASSES), pretrained=str(dataset("vit")), model_kwargs=VIT).net
    net.blocks = net.blocks[:BLOCKS]
    module = Trained(net, lambda batch: {"x": batch["image"]}, arm, LR)
    shown = columns("train", 400, SHUFFLED if arm.clean else CORRELATION, task.seed)
    measured: dict[str, Any] = {
        "seconds": fit(module, batches(shown, draw_weights(shown, arm), task.seed), STEPS, task.weight, task.seed)
    }
    for number, (name, correlation) in enumerate(TESTS.items(), 1):
        data = columns("test", 100, correlation, task.seed + 100 * number)
        measured[name] = accuracy(logits(net, data["image"]), data["label"])
    return measured


def table(runs: Sequence[Run]) -> str:
    """A row per arm: accuracy of every seed."""
    rows = []
    for arm in ARMS:
        rows.append({"arm": arm, **{name: of_seeds(runs, arm, itemgetter(name)) for name in TESTS}})
    return markdown(rows)


def main() -> None:
    """Make the runs that are missing, and write the table."""
    no_options(__doc__)
    tasks = [Task(arm, seed, {}, (*own.weights, 0.0)[0]) for seed in SEEDS for arm, own in ARMS.items()]
    complete(RESULTS, tasks, train, 1)
    write_between(HERE / "README.md", table(list(load(RESULTS).values())), *MARKS)


if __name__ == "__main__":
    main()
