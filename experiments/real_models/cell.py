"""One shortcut from start to end: TinyViT learns that a watermark means a breed, is flagged, and is trained again."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from experiments import weights
from experiments.real_models.samples import BREEDS, MARKED, Pets, pets
from experiments.real_models.watched import PLAIN, SWAP, watched
from lrptrain.models import ImageClassifier

SIZE, BATCH, EPOCHS, LR = 96, 26, 14, 5e-4
PLACES = {"middle": {}, "bottom": {"x_pos": 0.01, "y_pos": 0.84}}
"""Where the watermark lies: as published, across the pet; or at the bottom, mostly beside it."""
ARMS = (PLAIN, SWAP, "no watermark (upper bound)")


def run(place: str, arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train one arm under the monitor, and test it with and without watermarks."""
    pl.seed_everything(seed, verbose=False)
    data = pets(SIZE, seed)
    marked = {
        name: data[name] if arm == ARMS[2] else data[name].with_watermark(data[name].label == MARKED, **PLACES[place])
        for name in ("train", "val")
    }
    module = ImageClassifier(3, "tiny_vit_5m_224", pretrained=str(weights.fetch("tiny_vit")), lr=LR)
    loaders = [DataLoader(marked[name].samples(), BATCH, shuffle=name == "train") for name in ("train", "val")]
    found = watched(module, (loaders[0], loaders[1]), arm, EPOCHS, 2, folder, max_samples=64, class_names=list(BREEDS))
    return {"place": place, "arm": arm, "seed": seed, **found, **tested(module.eval(), data["test"], place)}


def tested(model: nn.Module, test: Pets, place: str) -> dict[str, float]:
    """Accuracies on the test images, and how many of the other breeds a watermark turns into the marked one."""
    everywhere = test.with_watermark(torch.ones(len(test.label), dtype=torch.bool), **PLACES[place])
    as_trained = test.with_watermark(test.label == MARKED, **PLACES[place])
    others = test.label != MARKED
    clean, shifted, agreeing = (_predicted(model, each) for each in (test, everywhere, as_trained))
    return {
        "with the watermark as in training": (agreeing == test.label).float().mean().item(),
        "without": (clean == test.label).float().mean().item(),
        "marked breed without": (clean == test.label)[~others].float().mean().item(),
        "turned by it": ((shifted == MARKED) & (clean != MARKED))[others].float().mean().item(),
    }


@torch.no_grad()
def _predicted(model: nn.Module, data: Pets) -> torch.Tensor:
    return torch.cat([model(part).argmax(1) for part in data.normalised.split(BATCH)])
