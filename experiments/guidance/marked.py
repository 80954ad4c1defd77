"""Digits with shortcuts that `lrptrain.data.planted` lacks: a tint around the digit, and two shortcuts at a time."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from experiments.guidance.images import DIGIT, HELD_OUT, TRAIN, pools
from experiments.vision import MEAN, STD
from lrptrain.data.planted import PALETTE, TAG_PIXELS, TINT, digit_strokes, planted_digits

CLASSES = len(PALETTE)
SHUFFLED = 1 / CLASSES
"""The correlation of a shortcut that tells nothing of the class."""


def marked_digits(split: str, correlations: Mapping[str, float], size: int, seed: int) -> dict[str, Tensor]:
    """Columns of a split's digits with shortcuts, each drawn for itself; images normalised.

    Args:
        split: "train", "val" or "test", which share no digit.
        correlations: By shortcut the probability that it is the own class's: "around", a tint of everything but the
            annotation; "tint", one that shines through the strokes, too; "tag", a square in a random corner.
        size: The side of the images in pixels.
        seed: The seed of everything drawn.

    Returns:
        `image`, `mask`, `label`, and `group`: 1 where the first of the shortcuts agrees with the class.
    """
    strokes, labels = digit_strokes(DIGIT)
    number = ("train", "val", "test").index(split)
    rng = np.random.default_rng([seed, number])
    chosen = rng.choice(pools()[split], TRAIN if split == "train" else HELD_OUT)
    label = labels[chosen]
    clean = planted_digits(strokes[chosen], label, "none", 1.0, size, 3 * seed + number)
    image, mask = clean["image"].transpose(0, 2, 3, 1).copy(), clean["mask"].copy()
    shown = {name: _shown_classes(label, share, rng) for name, share in correlations.items()}
    if "around" in shown:
        colour = PALETTE[shown["around"]][:, None, None]
        image = np.where(mask[..., None] == 1, image, (1 - TINT) * image + TINT * colour)
    if "tint" in shown:
        # What is bright is stroke, over which a background does not show.
        bright = image.min(-1, keepdims=True)
        image += (1 - bright) * TINT * (PALETTE[shown["tint"]][:, None, None] - image)
    if "tag" in shown:
        _tag(image, mask, shown["tag"], rng)
    mean, std = (np.array(each, np.float32) for each in (MEAN, STD))
    first = next(iter(shown.values()), label)
    columns = {
        "image": ((image - mean) / std).transpose(0, 3, 1, 2).astype(np.float32).copy(),
        "mask": mask,
        "label": label,
        "group": (first == label).astype(np.int64),
    }
    return {name: torch.from_numpy(values) for name, values in columns.items()}


def _shown_classes(label: np.ndarray, correlation: float, rng: np.random.Generator) -> np.ndarray:
    """The class whose shortcut each image shows."""
    other = (label + rng.integers(1, CLASSES, len(label))) % CLASSES
    return np.where(rng.random(len(label)) < correlation, label, other)


def _tag(image: np.ndarray, mask: np.ndarray, shown: np.ndarray, rng: np.random.Generator) -> None:
    """Put a square of the class's colour into a random corner; it hides what is below it, which is no evidence then."""
    far = image.shape[1] - TAG_PIXELS
    corners = rng.integers(0, 2, (len(image), 2)) * far
    for each, (top, left) in enumerate(corners):
        place = (each, slice(top, top + TAG_PIXELS), slice(left, left + TAG_PIXELS))
        image[place] = PALETTE[shown[each]]
        mask[place] = 0
