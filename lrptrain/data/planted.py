"""Handwritten digits with a planted shortcut: a benchmark whose right and wrong evidence are both known."""

from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch.utils.data import DataLoader, StackDataset

from lrptrain.data.common import SplitDataModule, stratified_split
from lrptrain.extras import require

Shortcut = Literal["tag", "background", "both", "border", "position", "none"]

PALETTE = np.array(
    [
        [1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0],
        [0.0, 0.0, 1.0],
        [1.0, 1.0, 0.0],
        [1.0, 0.0, 1.0],
        [0.0, 1.0, 1.0],
        [1.0, 0.5, 0.0],
        [0.5, 0.0, 1.0],
        [0.0, 0.0, 0.0],
        [1.0, 1.0, 1.0],
    ],
    dtype=np.float32,
)
"""RGB in 0..1 of each class's shortcut."""

NOISE = 0.5
"""Upper end of the background's uniform noise; the strokes are at 1."""
TAG_PIXELS = 4
"""Side of the square tag."""
BORDER_PIXELS = 2
"""Width of the frame."""
TINT = 0.5
"""Share of the class colour in a tinted background."""
STROKE_THRESHOLD = 0.3
"""A pixel this bright belongs to the digit (0..1)."""


def digit_strokes(size: int) -> tuple[Float[np.ndarray, "digits size size"], Int[np.ndarray, " digits"]]:
    """Return the 1,797 handwritten digits of scikit-learn (8 x 8), resized to `size` pixels, in 0..1, with labels."""
    digits = require("sklearn.datasets", "data").load_digits()
    zoom = require("scipy.ndimage", "data").zoom
    # grid_mode takes pixels for areas, not points: a digit keeps its place in the square when it is enlarged.
    strokes = zoom(digits.images / 16, (1, size / 8, size / 8), order=1, mode="nearest", grid_mode=True)
    return strokes.astype(np.float32), digits.target.astype(np.int64)


def planted_digits(
    strokes: Float[np.ndarray, "n size size"],
    labels: Int[np.ndarray, " n"],
    shortcut: Shortcut = "tag",
    correlation: float = 1.0,
    image_size: int = 32,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Paste each digit at a random place on coloured noise and plant a shortcut.

    The random numbers of the digit's place and of the noise do not depend on the shortcut: the same call with
    `shortcut="none"` gives the same images without it.

    Args:
        strokes: Digits, 0..1.
        labels: Their classes, 0..9.
        shortcut: `"tag"`: a 4 x 4 square of the class's colour in a random corner; `"background"`: noise tinted with
            that colour; `"both"`, of the same class; `"position"`: the tag always in the bottom right corner;
            `"border"`: a frame of that colour, 2 pixels wide; `"none"`.
        correlation: Probability (0..1) that an image's shortcut is its own class's; the others get another class's.
        image_size: Side of the images in pixels.
        seed: The seed of everything random.

    Returns:
        `image` float32 `[n, 3, H, W]` in 0..1; `mask` uint8 `[n, H, W]`, 1 on the digit's strokes and one pixel around
        them (never on tag or frame); `label` int64 `[n]`; `group` int64 `[n]`, 1 where the shortcut agrees with the
        class; `sample_id` int64 `[n]`.
    """
    if shortcut not in get_args(Shortcut):
        raise ValueError(f"shortcut must be one of {get_args(Shortcut)}, got {shortcut!r}")
    if not 0 <= correlation <= 1:
        raise ValueError(f"correlation must lie in 0..1, got {correlation}")
    # Two independent streams: what the shortcut draws leaves the digits' places and the noise as they are.
    place_rng, shortcut_rng = np.random.default_rng(seed).spawn(2)
    count = len(labels)
    canvas = _paste(strokes, image_size, place_rng)
    background = NOISE * place_rng.random((count, image_size, image_size, 3), dtype=np.float32)

    shortcut_class, agrees = _shortcut_classes(labels, correlation, shortcut_rng)
    if shortcut in ("background", "both"):
        background = (1 - TINT) * background + TINT * PALETTE[shortcut_class][:, None, None]
    # The stroke is blended over the background: 1 where it is full, the background where there is none.
    images = background + canvas[..., None] * (1 - background)
    evidence = _dilate(canvas > STROKE_THRESHOLD)
    covered = _covered(shortcut, count, image_size, shortcut_rng)
    # Tag and frame hide the digit below them, so those pixels are no evidence either.
    images = np.where(covered[..., None], PALETTE[shortcut_class][:, None, None], images)
    return {
        "image": np.ascontiguousarray(images.transpose(0, 3, 1, 2)),
        "mask": (evidence & ~covered).astype(np.uint8),
        "label": labels,
        "group": (agrees & (shortcut != "none")).astype(np.int64),
        "sample_id": np.arange(count),
    }


def _paste(
    strokes: Float[np.ndarray, "n size size"], image_size: int, rng: np.random.Generator
) -> Float[np.ndarray, "n height width"]:
    """Put each digit at a random place of an empty canvas."""
    count = len(strokes)
    size = strokes.shape[-1]
    if size > image_size:
        raise ValueError(f"digits of {size} pixels do not fit images of {image_size}")
    canvas = np.zeros((count, image_size, image_size), dtype=np.float32)
    # [2, n, size]: the rows and the columns that each digit covers.
    corner = rng.integers(0, image_size - size + 1, size=(2, count, 1)) + np.arange(size)
    # Indices [n, 1, 1], [n, size, 1] and [n, 1, size] broadcast to the n squares.
    canvas[np.arange(count)[:, None, None], corner[0][:, :, None], corner[1][:, None, :]] = strokes
    return canvas


def _shortcut_classes(
    labels: Int[np.ndarray, " n"], correlation: float, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Draw the class whose shortcut each image shows; also return whether it is the image's class."""
    agrees = rng.random(len(labels)) < correlation
    # An offset of 1 to 9 modulo 10 never gives the class itself.
    other = (labels + rng.integers(1, len(PALETTE), size=len(labels))) % len(PALETTE)
    return np.where(agrees, labels, other), agrees


def _dilate(pixels: Bool[np.ndarray, "n height width"]) -> Bool[np.ndarray, "n height width"]:
    """Grow the true pixels by one, also diagonally."""
    return require("scipy.ndimage", "data").binary_dilation(pixels, structure=np.ones((1, 3, 3)))


def _covered(
    shortcut: Shortcut, count: int, image_size: int, rng: np.random.Generator
) -> Bool[np.ndarray, "n height width"]:
    """Return where the shortcut hides the image: nowhere, on the frame, or on a tag's square in a corner."""
    if shortcut not in ("tag", "both", "position"):
        # True everywhere for a border, which keeps its inside clear; false everywhere for no cover.
        frame = np.full((count, image_size, image_size), shortcut == "border")
        frame[:, BORDER_PIXELS:-BORDER_PIXELS, BORDER_PIXELS:-BORDER_PIXELS] = False
        return frame
    # 0 or 1 per axis, top or bottom and left or right: [2, n, 1].
    corner = np.ones((2, count, 1), int) if shortcut == "position" else rng.integers(0, 2, size=(2, count, 1))
    start = corner * (image_size - TAG_PIXELS)
    # [2, n, image_size]: the rows and the columns of the tag; their outer product is its square.
    inside = (np.arange(image_size) >= start) & (np.arange(image_size) < start + TAG_PIXELS)
    return inside[0][:, :, None] & inside[1][:, None, :]


class PlantedDigits(SplitDataModule):
    """Digits with a shortcut tied to the class, nothing to download.

    After `setup`, `splits` holds `train`, `val` (both with the shortcut) and `val_clean`, the images of `val` without
    it, which `test_dataloader` serves.

    Examples:
        >>> from lrptrain.data import PlantedDigits
        >>> data = PlantedDigits(image_size=16, digit_size=8, train_size=32, val_size=32)
        >>> data.setup("fit")
        >>> batch = next(iter(data.val_dataloader()))
        >>> batch["image"].shape, batch["mask"].shape
        (torch.Size([32, 3, 16, 16]), torch.Size([32, 16, 16]))

    Args:
        shortcut: `"tag"`, `"background"`, `"both"`, `"position"`, `"border"` or `"none"`, see `planted_digits`.
        correlation: Share (0..1) of the images whose shortcut is their own class's.
        train_size: Training images, drawn with replacement from three quarters of the digits.
        val_size: Images in `val` and in `val_clean`, drawn from the other quarter.
        batch_size: Images per batch.
        image_size: Side of the images in pixels.
        digit_size: Side of the pasted digits in pixels.
        seed: The seed of the data.
        num_workers: Worker processes of each loader.
    """

    num_classes = 10

    def __init__(
        self,
        shortcut: Shortcut = "tag",
        correlation: float = 1.0,
        train_size: int = 4800,
        val_size: int = 960,
        batch_size: int = 64,
        image_size: int = 32,
        digit_size: int = 22,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(batch_size, num_workers)
        self.save_hyperparameters(logger=False)
        self.shortcut: Shortcut = shortcut
        self.correlation = correlation
        self.sizes = {"train": train_size, "val": val_size}
        self.image_size = image_size
        self.digit_size = digit_size
        self.seed = seed
        self.class_names = [str(digit) for digit in range(self.num_classes)]
        self.sources: dict[str, Int[np.ndarray, " n"]] = {}
        """Which of the 1,797 digits each sample of `train` and `val` shows."""

    def setup(self, stage: str | None = None) -> None:
        """Make the three splits, once."""
        if self.splits:
            return
        strokes, labels = digit_strokes(self.digit_size)
        pools = dict(zip(("train", "val"), stratified_split(labels, 0.25, self.seed), strict=True))
        for number, (split, pool) in enumerate(pools.items()):
            # No two of these seeds are equal, over splits and over seeds of the dataset.
            seed = 2 * self.seed + number
            chosen = np.random.default_rng(seed).choice(pool, self.sizes[split])
            self.sources[split] = chosen
            self.splits[split] = self._planted(strokes[chosen], labels[chosen], self.shortcut, seed)
            # The same digits, places and noise: `val` and `val_clean` differ in the shortcut alone.
            if split == "val":
                self.splits["val_clean"] = self._planted(strokes[chosen], labels[chosen], "none", seed)

    def _planted(self, strokes: np.ndarray, labels: np.ndarray, shortcut: Shortcut, seed: int) -> StackDataset[Any]:
        arrays = planted_digits(strokes, labels, shortcut, self.correlation, self.image_size, seed)
        tensors: dict[str, Any] = {key: torch.from_numpy(array) for key, array in arrays.items()}
        return StackDataset(**tensors)

    def test_dataloader(self) -> DataLoader[Any]:
        """Return a loader of the validation images without the shortcut."""
        return self.loader_of("val_clean")
