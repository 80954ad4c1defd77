"""A tint on photographs, and no annotation: what does a swap of colours mend, and what does jitter?

`python -m experiments.guidance.tinted` makes the runs that are missing, and writes the table into README.md.
"""

import io
import zipfile
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from PIL import Image
from torch import Tensor

from experiments.command import no_options
from experiments.data import dataset
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
CLASSES = ("automobile", "cat", "ship", "horse")
TINTS = np.array([[1, 0.1, 0.1], [0.1, 1, 0.1], [0.1, 0.1, 1], [1, 1, 0.1]], np.float32)
"""Of each class, RGB in 0..1."""
TINT, CORRELATION = 0.2, 0.98
"""The share of a tint in the colour of every pixel; that of the photographs in the tint of their own class."""
VIT = {"img_size": 32, "patch_size": 4, "embed_dim": 128, "depth": 6, "num_heads": 4}
BLOCKS, LR = 3, 3e-4
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


def photographs(split: str, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10's photographs of four classes, float32 `[n, 32, 32, 3]` in 0..1, and their labels."""
    images = []
    with zipfile.ZipFile(dataset("cifar10")) as archive:
        names = sorted(archive.namelist())
        for name in CLASSES:
            chosen = [each for each in names if each.startswith(f"{split}/{name}/") and each.endswith("jpg")]
            opened = [Image.open(io.BytesIO(archive.read(each))) for each in chosen[:per_class]]
            images += [np.asarray(image.convert("RGB"), np.float32) / 255 for image in opened]
    return np.stack(images), np.repeat(np.arange(len(CLASSES)), per_class)


def columns(split: str, per_class: int, correlation: float, seed: int) -> dict[str, Tensor]:
    """Photographs with a tint, normalised, without annotations."""
    images, labels = photographs(split, per_class)
    rng = np.random.default_rng(seed)
    other = (labels + rng.integers(1, len(CLASSES), len(labels))) % len(CLASSES)
    shown = np.where(rng.random(len(labels)) < correlation, labels, other)
    tinted = (1 - TINT) * images + TINT * TINTS[shown][:, None, None]
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
