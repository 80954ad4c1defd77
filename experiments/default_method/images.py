"""Digits with a tag of their class, or without, and the small ViT that learns them."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, StackDataset

from experiments.data import dataset
from experiments.vision import MEAN, STD, vit
from lrptrain.data.common import stratified_split
from lrptrain.data.planted import digit_strokes, planted_digits

SIZE, DIGIT, BLOCKS, TRAIN, HELD_OUT, BATCH = 24, 14, 3, 4800, 600, 32


def network() -> nn.Module:
    """The first three blocks of the small pre-trained ViT."""
    found = vit(10, SIZE, dataset("vit"))
    found.blocks = found.blocks[:BLOCKS]
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
