"""The pets with masks of breeds, and how well masks of maps fit them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from experiments import pets
from experiments.data import dataset
from experiments.vision import MEAN, STD
from lrptrain.batch.annotations import IGNORED
from lrptrain.segmentation.masks import best_threshold, label_map
from lrptrain.segmentation.scoring import MaskScore

SIZE, CLASSES, FEW = 64, 3, 16
"""Pixels per side; breeds; images per split for the dear methods."""
SPLITS = ("val", "train", "test")


@dataclass(frozen=True)
class Photographs:
    """Images of one split, normalised and in 0..1, with masks (0 background, 1 + breed, 255 ignored) and breeds."""

    images: Float[Tensor, "n 3 height width"]
    rgb: Float[Tensor, "n 3 height width"]
    masks: UInt8[Tensor, "n height width"]
    labels: Int[Tensor, " n"]

    def first(self, count: int | None) -> "Photographs":
        """The first few of them."""
        return Photographs(self.images[:count], self.rgb[:count], self.masks[:count], self.labels[:count])


class Scores(NamedTuple):
    """Mean IoU over background and breeds, and over background and pet, all breeds taken as one."""

    breeds: float
    pet: float


@lru_cache(1)
def load(seed: int) -> dict[str, Photographs]:
    """`train` and `val` (a fifth of the official trainval list, by seed), `test`: each in one fixed random order."""
    splits = pets.load(dataset("pets"), SIZE, seed)
    return {name: _of_breeds(pets.shuffled(split)) for name, split in splits.items()}


def _of_breeds(split: pets.Split) -> Photographs:
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (MEAN, STD))
    breed = (split.labels + 1).to(torch.uint8)[:, None, None]
    masks = torch.where((split.masks != 0) & (split.masks != IGNORED), breed, split.masks)
    return Photographs(split.images, (split.images * std + mean).clamp(0, 1), masks, split.labels)


def of_breeds(maps: Float[Tensor, "n height width"], labels: Int[Tensor, " n"]) -> Float[Tensor, "n 3 height width"]:
    """One map per image as the map of its breed."""
    return maps[:, None] * F.one_hot(labels, CLASSES)[:, :, None, None]


def tuned(maps: Float[Tensor, "n height width"], split: Photographs) -> float:
    """The threshold of the background that is best on a split."""
    return best_threshold(of_breeds(maps, split.labels), split.masks)[0]


def scored(maps: Float[Tensor, "n height width"], labels: Int[Tensor, " n"], split: Photographs, at: float) -> Scores:
    """Of maps for these breeds, cut at a threshold."""
    return compared(label_map(of_breeds(maps, labels), at), split)


def compared(masks: UInt8[Tensor, "n height width"], split: Photographs) -> Scores:
    """Of masks."""
    alone = (torch.where(own == IGNORED, own, own.clamp(max=1)) for own in (masks, split.masks))
    return Scores(_mean_iou(CLASSES, masks, split.masks), _mean_iou(1, *alone))


def _mean_iou(classes: int, masks: Tensor, truth: Tensor) -> float:
    score = MaskScore(classes)
    score.update(masks, truth)
    return float(score.compute()["mean_iou"])


def in_parts(n: int, size: int = 32) -> Sequence[slice]:
    """Batches of so many images."""
    return [slice(start, start + size) for start in range(0, n, size)]
