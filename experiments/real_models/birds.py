"""Waterbirds-100 on TinyViT and Hiera: every training bird stands on its own background, and boxes say where it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lrptrain
from experiments import weights
from experiments.real_models.measured import Measure, Run
from experiments.real_models.watched import PLAIN, SWAP, guidance_of, watched
from experiments.real_models.waterbirds import Birds, alone, birds
from experiments.records import named
from lrptrain.callbacks import RelevanceGuidance
from lrptrain.cues.places import background
from lrptrain.models import ImageClassifier

SIZE, BATCH, EPOCHS, LR = 96, 30, 8, 5e-4
CLASSES = ("landbird", "waterbird")
ALONE = "birds alone (upper bound)"
BOTH = "swap of surroundings and colour"
"""What the monitor's last line names where `SWAP` leaves a reliance on colour and contrast."""
LONGER = "swap, three times as long"
"""What that line names first."""
MIDDLE = "swap of all but the middle, no boxes"
OUTLINED = "swap, boxes by MobileSAM"
ARMS = (PLAIN, SWAP, MIDDLE, OUTLINED, ALONE, BOTH, LONGER)
ASKED = {"by default": (), "asked for the background": (background(),)}
"""What an inspection without boxes is asked beside its own cues."""
NETWORKS = {"TinyViT-5M": ("tiny_vit_5m_224", "tiny_vit"), "Hiera-Tiny": ("sam2_hiera_tiny", "hiera_tiny")}
"""By name, what timm calls it and what `experiments/weights.py` does."""
GROUPS = 4


def run(network: str, arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train one arm under the monitor, which sees validation birds on their own background, as in training.

    The upper bound is trained, watched and tested on images of which everything outside of the boxes is blank. The
    plain model is inspected without boxes, too.
    """
    pl.seed_everything(seed, verbose=False)
    splits = {name: birds(name, SIZE) for name in ("train", "val", "test")}
    if arm == OUTLINED:
        splits |= {name: birds(name, SIZE, folder / f"outlines_birds_{name}.pt") for name in ("train", "val")}
    if arm == ALONE:
        splits = {name: alone(split) for name, split in splits.items()}
    own = splits["val"].label == splits["val"].place
    name, source = NETWORKS[network]
    module = ImageClassifier(len(CLASSES), name, pretrained=str(weights.fetch(source)), lr=LR)
    seen = splits["val"].chosen(own)
    train = DataLoader(_samples(splits["train"], arm != MIDDLE), BATCH, shuffle=True)
    shown = DataLoader(_samples(seen, arm != MIDDLE), BATCH)
    swaps: dict[str, Any] = {BOTH: ["outside", "colour"], MIDDLE: "background"}
    guidance = (
        RelevanceGuidance("swap", swap=swaps[arm]) if arm in swaps else guidance_of(SWAP if arm == OUTLINED else arm)
    )
    epochs = EPOCHS
    if arm == LONGER:
        guidance = guidance_of(SWAP)
        epochs = 3 * EPOCHS
    training = watched(
        module, (train, shown), guidance, epochs, 1, folder, show=lrptrain.Show(class_names=list(CLASSES))
    )
    record = {"network": network, "arm": arm, "seed": seed, **training.record, **tested(module.eval(), splits["test"])}
    return record | ({"without annotations": _asked(module, seen)} if arm == PLAIN else {})


def _asked(module: ImageClassifier, seen: Birds) -> dict[str, Any]:
    """What inspections without boxes name."""
    bare = DataLoader(_samples(seen, False), BATCH)
    return {name: named(lrptrain.inspect(module, bare, cues=list(cues)).findings) for name, cues in ASKED.items()}


def _samples(data: Birds, boxes: bool = True) -> list[dict[str, Tensor]]:  # a list is a dataset to a loader
    columns = zip(data.image, data.mask, data.label, strict=True)
    return [{"image": image, "label": label} | ({"mask": mask} if boxes else {}) for image, mask, label in columns]


@torch.no_grad()
def tested(model: nn.Module, test: Birds) -> dict[str, list[int]]:
    """Per test bird 1 where it is told, and its group: 2 for a waterbird, plus 1 for a background of water."""
    right = torch.cat([model(part).argmax(1) for part in test.image.split(BATCH)]) == test.label
    return {"right": right.int().tolist(), "group": (2 * test.label + test.place).tolist()}


def _on_its_own(run: Run) -> np.ndarray:
    group = np.array(run["group"])
    return np.array(run["right"], float)[(group == 0) | (group == GROUPS - 1)]


def _by_group(run: Run) -> np.ndarray:
    """A row per bird: right or not in the column of its group, then the group, one-hot."""
    group = np.eye(GROUPS)[run["group"]]
    return np.hstack([group * np.array(run["right"])[:, None], group])


def _accuracies(means: np.ndarray) -> np.ndarray:
    """`[resamples, groups]`."""
    return means[:, :GROUPS] / means[:, GROUPS:]


MEASURES = [
    Measure("on its own background", _on_its_own),
    Measure("mean of four groups", _by_group, lambda means: _accuracies(means).mean(1)),
    Measure("worst group", _by_group, lambda means: _accuracies(means).min(1)),
]
