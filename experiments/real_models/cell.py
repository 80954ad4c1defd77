"""One shortcut from start to end: TinyViT learns that a watermark means a breed, is flagged, and is trained again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lrptrain
from experiments import weights
from experiments.real_models.measured import Measure, Run
from experiments.real_models.samples import BREEDS, MARKED, Pets, pets
from experiments.real_models.watched import PLAIN, SWAP, Watched, guidance_of, watched
from lrptrain.callbacks import RelevanceGuidance
from lrptrain.cues.cue import Cue
from lrptrain.cues.mark import Mark
from lrptrain.findings import Finding
from lrptrain.models import ImageClassifier

SIZE, BATCH, EPOCHS, LR = 96, 26, 14, 5e-4
PLACES = {"middle": {}, "bottom": {"x_pos": 0.01, "y_pos": 0.84}}
"""Where the watermark lies: as published, across the pet; or at the bottom, mostly beside it."""
UPPER = "no watermark (upper bound)"
JUDGED = "swap of its findings, marks judged faults"
"""Trained anew on swaps of the faults that the monitor of a plain training named, and of marks that it relies on."""
BOTH = "swap of its findings and of the surroundings"
"""As that, beside all that lies outside of the masks."""
ARMS = (PLAIN, SWAP, UPPER, JUDGED, BOTH)


def run(place: str, arm: str, seed: int, folder: Path, size: int = SIZE, epochs: int = EPOCHS) -> dict[str, Any]:
    """Train one arm under the monitor, and test it with and without watermarks."""
    pl.seed_everything(seed, verbose=False)
    data = pets(size, seed)
    marked = {
        name: data[name] if arm == UPPER else data[name].with_watermark(data[name].label == MARKED, **PLACES[place])
        for name in ("train", "val")
    }

    def training(guidance: RelevanceGuidance | None) -> tuple[ImageClassifier, Watched]:
        module = ImageClassifier(3, "tiny_vit_5m_224", pretrained=str(weights.fetch("tiny_vit")), lr=LR)
        loaders = (
            DataLoader(marked["train"].samples(), BATCH, shuffle=True),  # type: ignore[arg-type]
            DataLoader(marked["val"].samples(), BATCH),  # type: ignore[arg-type]
        )
        options = {"max_samples": 64, "show": lrptrain.Show(class_names=list(BREEDS))}
        return module, watched(module, loaders, guidance, epochs, min(2, epochs), folder, **options)

    told = {"place": place, "arm": arm, "seed": seed, "size": size, "epochs": epochs}
    if arm not in (JUDGED, BOTH):
        module, found = training(guidance_of(arm))
        return told | found.record | tested(module.eval(), data["test"], place)
    pl.seed_everything(seed, verbose=False)  # both of its trainings begin alike
    module, found = training(None)
    swapped = judged(found.findings)
    told["swapped"] = [cue.name for cue in swapped]
    if swapped:  # else nobody would train anew
        plain_seconds = found.record["seconds"]
        pl.seed_everything(seed, verbose=False)
        beside: list[Literal["outside"]] = ["outside"] if arm == BOTH else []
        module, found = training(RelevanceGuidance("swap", swap=[*beside, *swapped]))
        found.record["seconds"] += plain_seconds
    return told | found.record | tested(module.eval(), data["test"], place)


def judged(findings: Sequence[Finding]) -> list[Cue]:
    """The cues that a person swaps who has seen that marks were drawn on: of faults, and of marks that are open."""
    return [each.cue for each in findings if each.is_fault or (each.needs_review and each.kind == Mark.kind)]


def tested(model: nn.Module, test: Pets, place: str) -> dict[str, list[int]]:
    """Per test image its breed, and the one that is said without the mark and with it."""
    everywhere = test.with_watermark(torch.ones(len(test.label), dtype=torch.bool), **PLACES[place])
    plain, marked = (_predicted(model, each.normalised) for each in (test, everywhere))
    return {"breed": test.label.tolist(), "said without": plain, "said with": marked}


@torch.no_grad()
def _predicted(model: nn.Module, images: Tensor) -> list[int]:
    return torch.cat([model(part).argmax(1) for part in images.split(BATCH)]).tolist()


def _as_in_training(run: Run) -> np.ndarray:
    """1 where the breed is said; the marked breed has its mark, the others have none."""
    breed = np.array(run["breed"])
    return np.where(breed == MARKED, run["said with"], run["said without"]) == breed


def _without(run: Run) -> np.ndarray:
    return np.equal(run["said without"], run["breed"])


def _marked_breed_without(run: Run) -> np.ndarray:
    return _without(run)[np.equal(run["breed"], MARKED)]


def _turned(run: Run) -> np.ndarray:
    """Of other breeds: 1 where the mark alone makes it the marked one."""
    turned = np.equal(run["said with"], MARKED) & np.not_equal(run["said without"], MARKED)
    return turned[np.not_equal(run["breed"], MARKED)]


MEASURES = [
    Measure("with the watermark as in training", _as_in_training),
    Measure("without", _without),
    Measure("marked breed without", _marked_breed_without),
    Measure("turned by it", _turned),
]
