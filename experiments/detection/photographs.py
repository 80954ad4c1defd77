"""Photographs with a planted shortcut, watched without annotations and with every default. See README.md.

    .venv/bin/python -m experiments.detection.photographs random --seed 0

Prints the accuracy, the accuracy with the shortcut shuffled, and what the monitor found.
"""

import argparse
import io
import tempfile
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from PIL import Image
from torch.utils.data import DataLoader, StackDataset

from experiments.data import dataset
from experiments.vision import MEAN, STD
from lrptrain.callbacks import RelevanceMonitor
from lrptrain.models import ImageClassifier

CLASSES = ("automobile", "cat", "ship", "horse")
TEN_CLASSES = (*CLASSES, "airplane", "bird", "deer", "dog", "frog", "truck")
COLOURS = np.array([[1, 0.1, 0.1], [0.1, 1, 0.1], [0.1, 0.1, 1], [1, 1, 0.1]], np.float32)
"""Of each class's mark or tint, RGB in 0..1."""
CORRELATION = 0.98
DOT = 4
TINT = 0.2
"""The side of a dot in pixels, and the share of a tint in the colour of every pixel."""
CORNERS = ((1, 1), (1, 27), (27, 1), (27, 27))
VIT = {"img_size": 32, "patch_size": 4, "embed_dim": 128, "depth": 6, "num_heads": 4}
BLOCKS, EPOCHS, BATCH, LR = 3, 3, 32, 3e-4
KINDS = ("clean", "fixed", "random", "tint", "clean10", "tint10")
"""Those of ten classes have a tint in one of them, the cats, or none."""


def classes_of(kind: str) -> tuple[str, ...]:
    """The names of the classes."""
    return TEN_CLASSES if kind.endswith("10") else CLASSES


def photographs(split: str, per_class: int, classes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10's photographs of some classes, float32 `[n, 32, 32, 3]` in 0..1, and their labels."""
    images = []
    with zipfile.ZipFile(dataset("cifar10")) as archive:
        names = sorted(archive.namelist())
        for name in classes:
            chosen = [each for each in names if each.startswith(f"{split}/{name}/") and each.endswith("jpg")]
            opened = [Image.open(io.BytesIO(archive.read(each))) for each in chosen[:per_class]]
            images += [np.asarray(image.convert("RGB"), np.float32) / 255 for image in opened]
    return np.stack(images), np.repeat(np.arange(len(classes)), per_class)


def planted(images: np.ndarray, labels: np.ndarray, kind: str, correlation: float, seed: int) -> np.ndarray:
    """The images with a dot of the class's colour, in one corner or near a random one, or with a tint of it."""
    rng = np.random.default_rng(seed)
    images = images.copy()
    count = len(classes_of(kind))
    other = (labels + rng.integers(1, count, len(labels))) % count
    shown = np.where(rng.random(len(labels)) < correlation, labels, other)
    for image, label in zip(images, shown, strict=True):
        if kind == "tint" or (kind == "tint10" and label == classes_of(kind).index("cat")):
            image[:] = (1 - TINT) * image + TINT * COLOURS[label]
        elif kind in ("fixed", "random"):
            top, left = CORNERS[rng.integers(4)] if kind == "random" else CORNERS[0]
            if kind == "random":
                top, left = np.array([top, left]) + rng.integers(-1, 2, 2)
            image[top : top + DOT, left : left + DOT] = COLOURS[label]
    return images


def loader(images: np.ndarray, labels: np.ndarray, shuffle: bool = False) -> DataLoader[dict[str, Any]]:
    """Batches without any annotation."""
    normalised = ((images - np.array(MEAN, np.float32)) / np.array(STD, np.float32)).transpose(0, 3, 1, 2)
    columns = {"image": torch.from_numpy(normalised.copy()), "label": torch.from_numpy(labels)}
    columns["sample_id"] = torch.arange(len(labels))
    return DataLoader(StackDataset(**columns), BATCH, shuffle=shuffle)  # type: ignore[arg-type]


@torch.no_grad()
def accuracy(module: ImageClassifier, batches: DataLoader[dict[str, Any]]) -> float:
    """The share of images that are read rightly."""
    module.eval()
    right = [(module(batch["image"]).argmax(1) == batch["label"]).float() for batch in batches]
    return float(torch.cat(right).mean())


def watch(kind: str, seed: int) -> str:
    """Train, and return what was found."""
    pl.seed_everything(seed, verbose=False)
    classes = classes_of(kind)
    images, labels = photographs("train", 250 if len(classes) == 10 else 400, classes)
    train = loader(planted(images, labels, kind, CORRELATION, seed), labels, shuffle=True)
    images, labels = photographs("test", 100, classes)
    shown = loader(planted(images, labels, kind, CORRELATION, seed + 100), labels)
    shuffled = loader(planted(images, labels, kind, 1 / len(classes), seed + 200), labels)
    module = ImageClassifier(len(classes), pretrained=str(dataset("vit")), model_kwargs=VIT, lr=LR)
    module.net.blocks = module.net.blocks[:BLOCKS]
    monitor = RelevanceMonitor(mean=MEAN, std=STD, class_names=classes, budget=None, progress_bar=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=EPOCHS, accelerator="cpu", callbacks=[monitor], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, default_root_dir=folder, gradient_clip_val=1.0,
        )  # fmt: skip
        trainer.fit(module, train, shown)
    values = trainer.callback_metrics
    found = [f"{each.kind} ({each.scope}) {each.state} {each.effect:.2f}" for each in monitor.findings]
    reliance = [f"{float(values[f'relevance/statistics_reliance{end}']):.2f}" for end in ("", "_control")]
    return (
        f"{kind}, seed {seed}: accuracy {accuracy(module, shown):.3f}, shuffled {accuracy(module, shuffled):.3f}, "
        f"colour and contrast {reliance[0]} (control {reliance[1]}); {'; '.join(found) or 'no finding'}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(watch(arguments.kind, arguments.seed))
