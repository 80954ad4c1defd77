"""Photographs of things before photographed textures, with a mark near a random corner: data, and the model."""

import io
import zipfile
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import nn

from experiments.data import dataset
from experiments.guidance.arms import Arm
from experiments.guidance.fitting import Batch, Trained
from experiments.guidance.images import BLOCKS
from experiments.vision import MEAN, STD, vit

THINGS = ("airplane", "bird", "deer", "dog", "frog", "truck")
COLOURS = np.array(
    [[0.9, 0.2, 0.2], [0.2, 0.9, 0.2], [0.2, 0.2, 0.9], [0.9, 0.9, 0.2], [0.9, 0.2, 0.9], [0.2, 0.9, 0.9]], np.float32
)
"""Of each class's mark, RGB in 0..1."""
SIDE, MARK, DIAMETERS, REACH = 32, 4, (22, 27), 2
"""Of images, of marks and of things (from, to) in pixels; how far a mark is from its corner at most."""
SHARES = {"train": ("train", 0, 400), "val": ("train", 400, 100), "test": ("test", 0, 100)}
"""By split CIFAR-10's own, the first photograph of each class, and how many."""
CORRELATION = 0.98
STEPS, LR = 100, 2e-3


@cache
def photographs(split: str) -> list[Image.Image]:
    """Those of all classes, one class behind the other."""
    source, start, count = SHARES[split]
    with zipfile.ZipFile(dataset("cifar10")) as archive:
        names = sorted(archive.namelist())
        chosen = []
        for each in THINGS:
            of_class = [name for name in names if name.startswith(f"{source}/{each}/") and name.endswith("jpg")]
            chosen += of_class[start : start + count]
        return [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in chosen]


def as_numbers(picture: Image.Image, side: int) -> Float[np.ndarray, "side side 3"]:
    """A picture of so many pixels, RGB in 0..1."""
    return np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR), np.float32) / 255


@cache
def textures() -> list[np.ndarray]:
    """Grounds, with a height of twice the images'."""
    found = [Image.open(path).convert("RGB") for path in sorted(dataset("textures").glob("*/*.jpg"))]
    return [as_numbers(each.crop((0, 0, *[min(each.size)] * 2)), 2 * SIDE) for each in found]


def columns(split: str, agreeing: float | None, seed: int) -> Batch:
    """A split's things, each a round cut-out before a texture, with a mark in so large a share that is its class's.

    Args:
        split: "train", "val" or "test", which share no thing.
        agreeing: The probability that a mark is its own class's, else it is another's; None: no mark.
        seed: Of places, grounds and marks. What it draws of the former two does not depend on the marks.

    Returns:
        `image`, normalised, `mask`, 1 on the thing where no mark hides it, `label`, and `group`, 1 where the mark
        agrees.
    """
    number = list(SHARES).index(split)
    rng, marks = np.random.default_rng([seed, number]), np.random.default_rng([seed, number, 1])
    things = photographs(split)
    label = np.repeat(np.arange(len(THINGS)), SHARES[split][2])
    image = np.empty((len(things), SIDE, SIDE, 3), np.float32)
    mask = np.empty((len(things), SIDE, SIDE), np.uint8)
    for place, thing in enumerate(things):
        image[place], mask[place] = _composed(thing, rng)
    agrees = marks.random(len(label)) < (1.0 if agreeing is None else agreeing)
    if agreeing is not None:
        other = (label + marks.integers(1, len(THINGS), len(label))) % len(THINGS)
        _mark(image, mask, np.where(agrees, label, other), marks)
    normalised = ((image - np.array(MEAN, np.float32)) / np.array(STD, np.float32)).transpose(0, 3, 1, 2)
    found = {"image": np.ascontiguousarray(normalised), "mask": mask, "label": label, "group": agrees.astype(np.int64)}
    return {name: torch.from_numpy(values) for name, values in found.items()}


def _composed(thing: Image.Image, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A round thing somewhere before a random window of a random texture, and where it is."""
    ground = textures()[rng.integers(len(textures()))]
    top, left = rng.integers(0, SIDE + 1, 2)
    image = ground[top : top + SIDE, left : left + SIDE].copy()
    diameter = int(rng.integers(*DIAMETERS))
    top, left = rng.integers(0, SIDE - diameter + 1, 2)
    rows, across = np.mgrid[:diameter, :diameter] - (diameter - 1) / 2
    round_ = np.hypot(rows, across) <= diameter / 2
    window = (slice(top, top + diameter), slice(left, left + diameter))
    image[window][round_] = as_numbers(thing, diameter)[round_]
    mask = np.zeros((SIDE, SIDE), np.uint8)
    mask[window] = round_
    return image, mask


def _mark(image: np.ndarray, mask: np.ndarray, shown: np.ndarray, rng: np.random.Generator) -> None:
    """Put a square of the class's colour near a random corner; it hides what is below it, which is no evidence then."""
    near = rng.integers(0, REACH + 1, (len(image), 2))
    far = rng.integers(0, 2, (len(image), 2)) == 1
    for each, (top, left) in enumerate(np.where(far, SIDE - MARK - near, near)):
        place = (each, slice(top, top + MARK), slice(left, left + MARK))
        image[place] = COLOURS[shown[each]]
        mask[place] = 0


def network(seed: int) -> nn.Module:
    """The first three blocks of the small pre-trained ViT."""
    torch.manual_seed(seed)
    net = vit(len(THINGS), SIDE, dataset("vit"))
    net.blocks = net.blocks[:BLOCKS]
    return net


def module(seed: int, arm: Arm, lr: float = LR) -> Trained:
    """What trains it."""
    return Trained(network(seed), lambda batch: {"x": batch["image"]}, arm, lr)
