"""Waterbirds-100 on TinyViT: every training bird stands on its own background, and boxes say where it is."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from experiments import weights
from experiments.guidance.birds import Birds, alone, birds
from experiments.real_models.samples import MEAN, STD
from experiments.real_models.watched import PLAIN, SWAP, watched
from lrptrain.models import ImageClassifier

SIZE, BATCH, EPOCHS, LR = 96, 30, 8, 5e-4
CLASSES = ("landbird", "waterbird")
ARMS = (PLAIN, SWAP, "birds alone (upper bound)")
TESTED = ("on its own background", "mean of four groups", "worst group")


def run(arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train one arm under the monitor, which sees validation birds on their own background, as in training.

    The upper bound is trained, watched and tested on images of which everything outside of the boxes is blank.
    """
    pl.seed_everything(seed, verbose=False)
    splits = {name: birds(name, None, SIZE, MEAN.tolist(), STD.tolist()) for name in ("train", "val", "test")}
    if arm == ARMS[2]:
        splits = {name: alone(split) for name, split in splits.items()}
    own = splits["val"].label == splits["val"].place
    module = ImageClassifier(2, "tiny_vit_5m_224", pretrained=str(weights.fetch("tiny_vit")), lr=LR)
    train = DataLoader(_samples(splits["train"]), BATCH, shuffle=True)
    shown = DataLoader(_samples(splits["val"].chosen(own)), BATCH)
    found = watched(module, (train, shown), arm, EPOCHS, 1, folder, class_names=list(CLASSES))
    return {"arm": arm, "seed": seed, **found, **tested(module.eval(), splits["test"])}


def _samples(data: Birds) -> list[dict[str, Tensor]]:  # a list is a dataset to a loader
    columns = zip(data.image, data.mask, data.label, strict=True)
    return [{"image": image, "mask": mask, "label": label} for image, mask, label in columns]


@torch.no_grad()
def tested(model: nn.Module, test: Birds) -> dict[str, float]:
    """Accuracies on the test birds: those on their own background, and the four groups of bird and background."""
    right = torch.cat([model(part).argmax(1) for part in test.image.split(BATCH)]) == test.label
    groups = [right[(test.label == bird) & (test.place == place)].float().mean() for bird in (0, 1) for place in (0, 1)]
    values = (right[test.label == test.place].float().mean(), torch.stack(groups).mean(), torch.stack(groups).min())
    return {name: value.item() for name, value in zip(TESTED, values, strict=True)}
