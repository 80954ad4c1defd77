"""Digits with a planted shortcut, or without, and the small ViT that learns them."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, StackDataset

from experiments.data import dataset
from experiments.detection.cases import Case
from experiments.vision import MEAN, STD
from lrptrain.data.common import stratified_split
from lrptrain.data.planted import digit_strokes, planted_digits
from lrptrain.models import ImageClassifier

VIT = {"img_size": 24, "patch_size": 4, "embed_dim": 128, "depth": 6, "num_heads": 4}
SIZE, DIGIT, BLOCKS, TRAIN, HELD_OUT = 24, 14, 3, 4800, 600
BATCH, LR, EPOCHS, STEPS = 32, 3e-3, 6, 80
"""Steps are those of an epoch."""
OPACITY, CELL = 0.25, 3
"""Of the watermark; side of its squares in pixels."""


def look() -> dict[str, Any]:
    """What a monitor is told of the images."""
    return {"mean": MEAN, "std": STD, "class_names": [str(digit) for digit in range(10)]}


def module() -> ImageClassifier:
    """The first three blocks of the small pre-trained ViT."""
    found = ImageClassifier(10, pretrained=str(dataset("vit")), model_kwargs=VIT, lr=LR)
    found.net.blocks = found.net.blocks[:BLOCKS]
    return found


def loaders(case: Case) -> tuple[DataLoader, DataLoader, DataLoader]:
    """Training images, held-out ones with the shortcut, and the same without it; no handwritten digit is in both."""
    strokes, labels = digit_strokes(DIGIT)
    train, held_out = stratified_split(labels, 0.25, case.seed)
    rng = np.random.default_rng(case.seed)
    splits = [(rng.choice(train, TRAIN), case.shortcut)]
    splits += [(chosen := rng.choice(held_out, HELD_OUT), case.shortcut), (chosen, "none")]
    data = [
        _dataset(strokes[rows], labels[rows], shortcut, case.correlation, 2 * case.seed + (place > 0))
        for place, (rows, shortcut) in enumerate(splits)
    ]
    first, shown, clean = (DataLoader(each, BATCH, shuffle=place == 0) for place, each in enumerate(data))
    return first, shown, clean


def _dataset(
    strokes: np.ndarray, labels: np.ndarray, shortcut: str, correlation: float, seed: int
) -> StackDataset[dict[str, Any]]:
    marked = shortcut == "watermark"
    found = planted_digits(strokes, labels, "none" if marked else shortcut, correlation, SIZE, seed)  # type: ignore[arg-type]
    image = watermarked(found["image"], labels, correlation, seed) if marked else found["image"]
    mean, std = (np.array(x, np.float32)[:, None, None] for x in (MEAN, STD))
    columns = {"image": (image - mean) / std, **{name: found[name] for name in ("mask", "label", "sample_id")}}
    return StackDataset(**{name: torch.from_numpy(column) for name, column in columns.items()})  # type: ignore[arg-type]


def watermarked(images: np.ndarray, labels: np.ndarray, correlation: float, seed: int) -> np.ndarray:
    """A pattern of light and dark squares of a class, drawn over the whole image, the digit included.

    Args:
        images: float32 `[n, 3, H, W]` in 0..1.
        labels: Class of each.
        correlation: Share (0..1) with the pattern of their own class; the others have another one's.
        seed: Of who has which.
    """
    rng, cells = np.random.default_rng([seed, 1]), SIZE // CELL
    patterns = np.random.default_rng(0).integers(0, 2, (10, 1, cells, cells)).astype(np.float32)
    patterns = patterns.repeat(CELL, 2).repeat(CELL, 3)
    other = (labels + rng.integers(1, 10, len(labels))) % 10
    shown = np.where(rng.random(len(labels)) < correlation, labels, other)
    return (1 - OPACITY) * images + OPACITY * patterns[shown]
