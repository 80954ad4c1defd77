"""Images of a thing on a photograph, of which it is known where the thing lies: digits, and small photographs."""

import io
import zipfile
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float, Int
from PIL import Image

from experiments.data import dataset
from lrptrain.data.common import stratified_split
from lrptrain.data.planted import digit_strokes

SIDE, THING, DIM = 24, 14, 0.6
"""Sides of an image and of the thing in pixels; the brightness of the surroundings."""
DIGITS = (3, 5, 8, 9)
"""Those that are hard to tell apart."""
PHOTOGRAPHS = ("automobile", "cat", "ship", "horse")
GROUNDS = ("frog", "deer", "bird", "airplane")
"""What surroundings are photographs of; no class of ours."""
PER_CLASS = {"train": 400, "test": 120}
CLASSES = len(DIGITS)


@dataclass(frozen=True)
class Things:
    """What the images are about.

    Attributes:
        colours: RGB in 0..1.
        covers: How much of the ground each hides, in 0..1.
        labels: Their classes.
    """

    colours: Float[np.ndarray, "n side side 3"]
    covers: Float[np.ndarray, "n side side"]
    labels: Int[np.ndarray, " n"]


@cache
def things(task: str, split: str) -> Things:
    """Return the things of a task; no handwritten digit and no photograph is in both splits.

    Args:
        task: "digits" or "photographs".
        split: "train" or "test".
    """
    return _digits(split) if task == "digits" else _photographs(split)


def _digits(split: str) -> Things:
    strokes, digits = digit_strokes(THING)
    kept = np.isin(digits, DIGITS)
    labels = np.searchsorted(DIGITS, digits[kept])
    rows = stratified_split(labels, 0.3, 0)[split == "test"]
    covers = strokes[kept][rows]
    return Things(np.ones((*covers.shape, 3), np.float32), covers, labels[rows])


def _photographs(split: str) -> Things:
    colours = _resized(_pictures(split, PHOTOGRAPHS), THING)
    return Things(colours, np.ones(colours.shape[:3], np.float32), np.repeat(np.arange(CLASSES), PER_CLASS[split]))


@cache
def grounds(split: str) -> Float[np.ndarray, "n side side 3"]:
    """Return dimmed photographs of what is no class, as large as the images."""
    return DIM * _resized(_pictures(split, GROUNDS), SIDE)


def _pictures(split: str, classes: tuple[str, ...]) -> list[Image.Image]:
    """CIFAR-10's photographs of the classes, one class after the other."""
    with zipfile.ZipFile(dataset("cifar10")) as archive:
        names = sorted(archive.namelist())
        chosen = []
        for each in classes:
            mine = [name for name in names if name.startswith(f"{split}/{each}/") and name.endswith("jpg")]
            chosen += mine[: PER_CLASS[split]]
        return [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in chosen]


def _resized(pictures: list[Image.Image], side: int) -> Float[np.ndarray, "n side side 3"]:
    small = [picture.resize((side, side), Image.Resampling.BILINEAR) for picture in pictures]
    return np.stack([np.asarray(each, np.float32) for each in small]) / 255
