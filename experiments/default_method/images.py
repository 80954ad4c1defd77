"""Digits with a tag of their class, or without, and the small ViT that learns them."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, StackDataset

from experiments.data import dataset
from experiments.vision import MEAN, STD
from lrptrain.data.common import stratified_split
from lrptrain.data.planted import digit_strokes, planted_digits
from lrptrain.models import ImageClassifier

VIT = {"img_size": 24, "patch_size": 4, "embed_dim": 128, "depth": 6, "num_heads": 4}
SIZE, DIGIT, BLOCKS, TRAIN, HELD_OUT = 24, 14, 3, 4800, 600
BATCH, LR = 32, 3e-3


def module() -> ImageClassifier:
    """The first three blocks of the small pre-trained ViT."""
    found = ImageClassifier(10, pretrained=str(dataset("vit")), model_kwargs=VIT, lr=LR)
    found.net.blocks = found.net.blocks[:BLOCKS]
    return found


def loaders(correlation: float, seed: int) -> tuple[DataLoader, DataLoader, DataLoader]:
    """Training images, held-out ones with the tag, and the same without it; no handwritten digit is in both.

    Args:
        correlation: The share (0..1) of the images that show the tag of their own class.
        seed: The seed of data and order.
    """
    strokes, labels = digit_strokes(DIGIT)
    train, held_out = stratified_split(labels, 0.25, seed)
    rng = np.random.default_rng(seed)
    splits = [(rng.choice(train, TRAIN), "tag"), (chosen := rng.choice(held_out, HELD_OUT), "tag"), (chosen, "none")]
    data = [
        _dataset(strokes[rows], labels[rows], shortcut, correlation, 2 * seed + (place > 0))
        for place, (rows, shortcut) in enumerate(splits)
    ]
    first, shown, clean = (DataLoader(each, BATCH, shuffle=place == 0) for place, each in enumerate(data))
    return first, shown, clean


def _dataset(
    strokes: np.ndarray, labels: np.ndarray, shortcut: str, correlation: float, seed: int
) -> StackDataset[dict[str, Any]]:
    found = planted_digits(strokes, labels, shortcut, correlation, SIZE, seed)  # type: ignore[arg-type]
    mean, std = (np.array(x, np.float32)[:, None, None] for x in (MEAN, STD))
    columns = {"image": (found["image"] - mean) / std, **{name: found[name] for name in ("mask", "label", "sample_id")}}
    return StackDataset(**{name: torch.from_numpy(column) for name, column in columns.items()})  # type: ignore[arg-type]
