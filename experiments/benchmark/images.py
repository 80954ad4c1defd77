"""Digits and photographs with a mark that goes with the class, or does not, and the small ViT that learns them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

import lrptrain
from experiments.benchmark import fresh_marks
from experiments.benchmark.cases import NO_MARK, Case
from experiments.benchmark.image_marks import AROUND_MARKS, GROUND_MARKS, PICTURE_MARKS, STAMPS, stamped
from experiments.benchmark.scenes import CLASSES, DIGITS, PHOTOGRAPHS, SIDE, THING, grounds, things
from experiments.data import dataset
from experiments.vision import MEAN, STD, vit
from lrptrain.data.planted import STROKE_THRESHOLD

BLOCKS, LR, BATCH, TRAIN, STEPS, HELD_OUT = 3, 1e-3, 32, 1600, 150, 200
Columns = dict[str, torch.Tensor]
OVER = {**PICTURE_MARKS, **fresh_marks.IMAGE_MARKS}
"""Marks of the whole image, the thing included."""


def network(_: int) -> nn.Module:
    """The first three blocks of the small ViT that was trained on CIFAR-10."""
    net = vit(CLASSES, SIDE, dataset("vit"))
    net.blocks = net.blocks[:BLOCKS]
    return net


def head(net: nn.Module) -> nn.Module:
    """What reads the embedding."""
    return net.head


def look(case: Case) -> dict[str, Any]:
    """What a monitor is told of the images."""
    names = [str(digit) for digit in DIGITS] if case.task == "digits" else list(PHOTOGRAPHS)
    return {"show": lrptrain.Show(mean=MEAN, std=STD, class_names=names, max_pictures=0)}


def samples(case: Case, split: str, count: int, seed: int) -> Callable[[bool], Columns]:
    """Return what makes the images of a run; both times with the same things at the same places before the same ground.

    Args:
        case: The run.
        split: "train" or "test".
        count: The number of images.
        seed: Of the choice, with the run's own.

    Returns:
        A function of whether the marks go with the classes as the run says, or are of any class.
    """
    stock = things(case.task, split)
    rows = np.random.default_rng([case.randomness, seed]).integers(0, len(stock.labels), count)

    def make(related: bool) -> Columns:
        forms = shown(stock.labels[rows], case.correlation if related else None, CLASSES, [case.randomness, seed, 1])
        rng = np.random.default_rng([case.randomness, seed, 2])
        return marked(case.task, split, rows, {case.kind: forms}, rng)

    return make


def shown(
    labels: Int[np.ndarray, " n"], correlation: float | None, classes: int, seed: list[int]
) -> Int[np.ndarray, " n"]:
    """Return the class whose mark each sample shows.

    Args:
        labels: The classes.
        correlation: Share (0..1) with that of their own, the others have that of another one; None for that of any.
        classes: How many there are.
        seed: Of the draw.
    """
    rng = np.random.default_rng(seed)
    if correlation is None:
        return rng.integers(0, classes, len(labels))
    other = (labels + rng.integers(1, classes, len(labels))) % classes
    return np.where(rng.random(len(labels)) < correlation, labels, other)


def marked(
    task: str,
    split: str,
    rows: Int[np.ndarray, " n"],
    marks: Mapping[str, Int[np.ndarray, " n"]],
    rng: np.random.Generator,
) -> Columns:
    """Images of some things, each at a random place before a random ground, with marks of some classes."""
    stock, behind = things(task, split), grounds(split)
    found = []
    for i, row in enumerate(rows):
        # Each image has randomness of its own, so that its form changes no other image.
        each = np.random.default_rng(rng.integers(2**32))
        ground = behind[each.integers(len(behind))]
        top, left = (each.random(2) * (SIDE - THING + 1)).astype(int)
        place = int(top), int(left)
        forms = {kind: int(each_form[i]) for kind, each_form in marks.items()}
        found.append(scene(forms, stock.colours[row], stock.covers[row], ground, place, each))
    return columns(found, stock.labels[rows])


def columns(scenes: Sequence[tuple[np.ndarray, np.ndarray]], labels: Int[np.ndarray, " n"]) -> Columns:
    """What a loader takes, of pictures (RGB in 0..1) with their masks, and their classes."""
    pictures, masks = (np.stack(each) for each in zip(*scenes, strict=True))
    normalised = ((pictures - np.array(MEAN, np.float32)) / np.array(STD, np.float32)).transpose(0, 3, 1, 2)
    return {
        "image": torch.from_numpy(np.ascontiguousarray(normalised, np.float32)),
        "mask": torch.from_numpy(masks.astype(np.uint8)),
        "label": torch.from_numpy(labels.astype(np.int64)),
        "sample_id": torch.arange(len(labels)),
    }


def scene(
    marks: Mapping[str, int], colour: np.ndarray, cover: np.ndarray, ground: np.ndarray, place: tuple[int, int],
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return a picture, RGB in 0..1, with each mark of its class, and where the thing is to be seen."""
    picture = np.array(ground)
    for kind, form in marks.items():
        picture = np.array(GROUND_MARKS[kind](picture, form, rng) if kind in GROUND_MARKS else picture)
    (top, left), side = place, len(cover)
    window = np.s_[top : top + side, left : left + side]
    hidden = np.zeros((SIDE, SIDE), np.float32)
    hidden[window] = cover
    for kind, form in marks.items():
        picture = AROUND_MARKS[kind](picture, hidden, form, rng) if kind in AROUND_MARKS else picture
    picture[window] += cover[..., None] * (colour - picture[window])
    mask, covered = np.zeros((2, SIDE, SIDE), bool)
    mask[window] = cover > STROKE_THRESHOLD
    for kind, form in marks.items():
        picture = OVER[kind](picture, form, rng) if kind in OVER else picture
        for stamp in STAMPS[kind](form, rng) if kind in STAMPS else ():
            stamped(picture, *stamp, covered)
    return picture.clip(0, 1), mask & ~covered


KINDS = {*GROUND_MARKS, *AROUND_MARKS, *OVER, *STAMPS, NO_MARK}
