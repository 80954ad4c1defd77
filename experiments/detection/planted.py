"""Does a class explain what lies in the middle, where something is planted there and where objects lie? See README.md.

    .venv/bin/python -m experiments.detection.planted

Without a model: labels stand for answers. Takes places of one to sixteen patches in the middle of images.
"""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int

from experiments.command import no_options
from experiments.detection.edges import COLOURS, WHOLE, WHOLE_SIDE, as_numbers, opened, scenes
from experiments.real_models.samples import pets
from experiments.table import markdown
from lrptrain.findings.content import MIN_EXPLAINED_VARIANCE, explained_by_class, is_planted, is_surely_planted

PATCH, DOT, DRAWS, PLACES = 4, 5, 10, 3
"""Sides of patches and dots in pixels; draws of images, and places in each."""
SIZES = (32, 64, 128)
PLANTED = ("nothing", "dot", "half a dot", "dot in one class")
Images = Float[np.ndarray, "n 3 side side"]


def data() -> dict[str, tuple[Images, Int[np.ndarray, " n"]]]:
    """Three breeds of pets, photographs of four classes, and six things on textures, with their classes."""
    found = pets(96, 0)
    animals = torch.cat([found[split].image for split in ("train", "val")])
    breeds = torch.cat([found[split].label for split in ("train", "val")]).numpy()
    small = F.interpolate(animals, (48, 48), mode="bilinear", antialias=True).numpy()
    classes = WHOLE["four"]
    photographs = np.stack([as_numbers(each, WHOLE_SIDE) for each in opened("train", classes, 1000, 150)])
    things, _ = scenes("train", 60, 0)
    return {
        "pets": (small, breeds),
        "photographs": (photographs.transpose(0, 3, 1, 2), np.repeat(np.arange(len(classes)), 150)),
        "things": (things.images.transpose(0, 3, 1, 2), things.labels),
    }


def place(grid: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Top, left, rows and columns of some patches in the middle."""
    rows, columns = rng.integers(1, 4 if grid <= 8 else 5, 2)
    first = int(np.ceil(0.2 * grid))
    top, left = (rng.integers(first, max(first + 1, grid - first - side + 1)) for side in (rows, columns))
    return int(top), int(left), int(rows), int(columns)


def with_dots(
    images: Images, labels: Int[np.ndarray, " n"], kind: str, where: tuple[int, ...], rng: np.random.Generator
) -> Images:
    """The images with a dot of their class's colour anywhere in a place, the same in all of them."""
    if kind == "nothing":
        return images
    top, left = (
        start * PATCH + rng.integers(0, max(1, side * PATCH - DOT + 1))
        for start, side in zip(where[:2], where[2:], strict=True)
    )
    opacity = 0.5 if kind == "half a dot" else 1.0
    images = images.copy()
    for image, label in zip(images, labels, strict=True):
        if kind != "dot in one class" or label == 1:
            window = image[:, top : top + DOT, left : left + DOT]
            window += opacity * (COLOURS[label][:, None, None] - window)
    return images


def measured(images: Images, labels: Int[np.ndarray, " n"], kind: str, count: int) -> dict[str, str]:
    """How often a class seems to explain what a place holds, and how often it surely does."""
    shares, seems, surely = [], [], []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        rows = rng.permutation(len(images))[:count]
        for _ in range(PLACES):
            where = place(images.shape[2] // PATCH, rng)
            top, left, height, width = (PATCH * number for number in where)
            shown = with_dots(images[rows], labels[rows], kind, where, rng)
            contents = shown[:, :, top : top + height, left : left + width].reshape(count, -1)
            shares.append(explained_by_class(contents, labels[rows], least=np.inf).share)
            seems.append(is_planted(contents, labels[rows]))
            surely.append(is_surely_planted(contents, labels[rows]))
    low, middle, high = np.quantile(shares, (0, 0.5, 1))
    return {
        "images": str(count),
        "share explained": f"{middle:.2f} ({low:.2f} to {high:.2f})",
        f"{MIN_EXPLAINED_VARIANCE:g} or more, p at most 0.01": f"{sum(seems)} of {len(seems)}",
        "surely 0.1": f"{sum(surely)} of {len(surely)}",
    }


def main() -> None:
    no_options(__doc__)
    torch.set_num_threads(1)
    rows = [
        {"planted": kind, "images of": name} | measured(*found, kind, count)
        for kind in PLANTED
        for name, found in data().items()
        for count in SIZES
    ]
    print(markdown(rows))


if __name__ == "__main__":
    main()
