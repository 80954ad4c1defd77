"""Whole photographs of pets with a mark that goes with the breed, or does not, and the TinyViT that learns them."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

import lrptrain
from experiments.benchmark.cases import Case
from experiments.benchmark.image_marks import AROUND_MARKS, GROUND_MARKS, PICTURE_MARKS, STAMPS, Picture, stamped
from experiments.benchmark.images import Columns, shown
from experiments.benchmark.scenes import SIDE
from experiments.real_models.samples import BREEDS, MEAN, STD, Pets, pets
from experiments.weights import fetch
from lrptrain.models.pretrained import timm_classifier

LR, BATCH, TRAIN, STEPS, HELD_OUT = 5e-4, 26, 195, 70, 105
LARGER = 4
"""How many pixels a mark's pixel is wide: marks are drawn 24 pixels wide, photographs have 96."""


def network(seed: int) -> nn.Module:
    """TinyViT as it was trained for a segmenter, with a new head."""
    torch.manual_seed(seed)
    return timm_classifier("tiny_vit_5m_224", len(BREEDS), str(fetch("tiny_vit")))


def head(net: Any) -> nn.Module:
    """What reads the embedding."""
    made: nn.Module = net.get_classifier()
    return made


def look(_: Case) -> dict[str, Any]:
    """What a monitor is told of the photographs."""
    mean, std = MEAN.tolist(), STD.tolist()
    return {"show": lrptrain.Show(mean=mean, std=std, class_names=list(BREEDS), max_pictures=0)}


@cache
def stock(split: str) -> Pets:
    """The official train and test photographs."""
    found = pets(LARGER * SIDE, 0, 0.02)
    if split == "test":
        return found["test"]
    both = found["train"], found["val"]
    return Pets(*(torch.cat([getattr(each, name) for each in both]) for name in ("image", "mask", "label")))


def samples(case: Case, split: str, count: int, seed: int) -> Callable[[bool], Columns]:
    """Return what makes the photographs of a run; see `images.samples`."""
    photographs = stock(split)
    rows = np.random.default_rng([case.randomness, seed]).choice(len(photographs.label), count, replace=False)
    labels = photographs.label[rows]

    def make(related: bool) -> Columns:
        correlation = case.correlation if related else None
        forms = shown(labels.numpy(), correlation, len(BREEDS), [case.randomness, seed, 1])
        rng = np.random.default_rng([case.randomness, seed, 2])
        found = []
        for row, form in zip(rows, forms, strict=True):
            # Each photograph has randomness of its own, so that its form changes no other one.
            each = np.random.default_rng(rng.integers(2**32))
            found.append(marked(case.kind, int(form), photographs, int(row), each))
        images, masks = (torch.stack(each) for each in zip(*found, strict=True))
        normalised = Pets(images, masks, labels).normalised
        return {"image": normalised, "mask": masks, "label": labels, "sample_id": torch.arange(len(rows))}

    return make


def marked(
    kind: str, form: int, photographs: Pets, row: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a photograph, RGB in 0..1, and its mask, without what a mark covers.

    What a mark changes in the photograph made smaller is made larger, and added to the photograph.
    """
    picture = photographs.image[row].permute(1, 2, 0).numpy().copy()
    mask = photographs.mask[row].numpy().copy()
    beside = (mask != 1)[..., None]
    small, cover = smaller(picture), smaller(1.0 - beside)[..., 0]
    if kind in GROUND_MARKS:
        picture += beside * larger(GROUND_MARKS[kind](small, form, rng) - small)
    elif kind in AROUND_MARKS:
        picture += beside * larger(AROUND_MARKS[kind](small, cover, form, rng) - small)
    elif kind in PICTURE_MARKS:
        picture += larger(PICTURE_MARKS[kind](small, form, rng) - small)
    elif kind in STAMPS:
        covered = np.zeros(mask.shape, bool)
        for stamp, top, left in STAMPS[kind](form, rng):
            stamped(picture, larger(stamp), LARGER * top, LARGER * left, covered)
        mask[covered] = 0
    return torch.from_numpy(picture.clip(0, 1)).permute(2, 0, 1).float(), torch.from_numpy(mask)


def smaller(picture: Picture) -> Picture:
    """Means of squares of pixels."""
    side = len(picture) // LARGER
    return picture.reshape(side, LARGER, side, LARGER, -1).mean((1, 3), dtype=np.float32)


def larger(picture: Picture) -> Picture:
    """A square of equal pixels for each."""
    return picture.repeat(LARGER, 0).repeat(LARGER, 1)
