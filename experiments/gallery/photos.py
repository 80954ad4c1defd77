"""Photographs as they are shown and as a model sees them, smaller and square."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from experiments.data import dataset
from experiments.vision import MEAN, STD, augment
from lrptrain.batch.annotations import boxes_to_mask

SHOWN = 360
"""The width of a photograph on the page, in pixels."""
SEEN = 48
"""The sides of what the models see."""
BREEDS = ("Abyssinian", "Bengal", "American bulldog")
BIRDS = ("land bird", "water bird")
STAMPS = ((214, 48, 49), (9, 132, 227), (46, 160, 67))
"""The colours of the stamps, by breed."""
STAMP = 0.2
"""The side of a stamp, as a share of the photograph's."""


@dataclass(frozen=True)
class Photo:
    """A photograph at the size of the page.

    Attributes:
        pixels: [height, width, 3], 0 to 255.
        mask: [height, width], 1 where the evidence lies, 0 elsewhere, 255 ignored.
        label: Its class.
        place: Of birds, whether the background is water (1) or land (0); else the label.
    """

    pixels: np.ndarray
    mask: np.ndarray
    label: int
    place: int


def seen(photos: Sequence[Photo]) -> dict[str, Tensor]:
    """What a model sees of photographs: a batch with `image`, `mask` and `label`."""
    images = [np.asarray(Image.fromarray(each.pixels).resize((SEEN, SEEN), Image.Resampling.BOX)) for each in photos]
    masks = [np.asarray(Image.fromarray(each.mask).resize((SEEN, SEEN), Image.Resampling.NEAREST)) for each in photos]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return {
        "image": (torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255 - mean) / std,
        "mask": torch.from_numpy(np.stack(masks)),
        "label": torch.tensor([each.label for each in photos]),
    }


@cache
def birds(split: int) -> list[Photo]:
    """Waterbirds-100: of training (0), validation (1) or test (2), with the boxes as masks."""
    root = dataset("waterbirds")
    with (root / "metadata.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == str(split)]
    return [_bird(Image.open(root / "images" / row["img_filename"]), row) for row in rows]


def _bird(file: Image.Image, row: dict[str, str]) -> Photo:
    factor = SHOWN / file.width
    x, y, wide, high = (factor * float(row[f"bbox_{name}"]) for name in "xywh")
    pixels = _resized(file)
    (mask,) = boxes_to_mask(torch.tensor([[[x, y, x + wide, y + high]]]), pixels.shape[:2])
    return Photo(pixels, mask.numpy().astype(np.uint8), int(row["y"]), int(row["place"]))


@cache
def pets(split: str) -> list[Photo]:
    """Oxford pets of three breeds: `train` or `test`, with the trimaps as masks."""
    root = dataset("pets")
    with (root / "split.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"].startswith(split)]
    names = sorted({row["breed"] for row in rows})
    photos = []
    for row in rows:
        trimap = np.asarray(Image.open(root / "trimaps" / f"{row['name']}.png"))
        pixels = _resized(Image.open(root / "images" / f"{row['name']}.jpg"))
        # 1 pet, 2 background, 3 the border between them.
        mask = np.select([trimap == 1, trimap == 3], [1, 255], 0).astype(np.uint8)
        mask = np.asarray(Image.fromarray(mask).resize(pixels.shape[1::-1], Image.Resampling.NEAREST))
        label = names.index(row["breed"])
        photos.append(Photo(pixels, mask, label, label))
    return photos


def stamped(photo: Photo, kind: int) -> Photo:
    """The photograph with the stamp of a breed in its lower right corner."""
    pixels, mask = photo.pixels.copy(), photo.mask.copy()
    high, wide = (round(STAMP * side) for side in pixels.shape[:2])
    pixels[-high:, -wide:] = (245, 245, 245)
    pixels[-high + high // 8 : -(high // 8), -wide + wide // 8 : -(wide // 8)] = STAMPS[kind]
    mask[-high:, -wide:] = 0
    return replace(photo, pixels=pixels, mask=mask)


def with_surroundings(photo: Photo, source: Photo) -> Photo:
    """The photograph with all that lies outside of its box from another one."""
    size = photo.pixels.shape[1::-1]
    other = np.asarray(Image.fromarray(source.pixels).resize(size))
    return replace(photo, pixels=np.where(photo.mask[..., None] == 1, photo.pixels, other), place=source.place)


class Augmented(Dataset):
    """Random windows and mirror images of what a model sees, with their masks."""

    def __init__(self, photos: Sequence[Photo], zoom: float) -> None:
        self.batch = seen(photos)
        self.zoom = zoom

    def __len__(self) -> int:
        return len(self.batch["label"])

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        image, mask = self.batch["image"][row], (self.batch["mask"][row] == 1).float()
        changed = augment(torch.cat([image, mask[None]])[None], None, self.zoom)[0]
        return {"image": changed[:3], "mask": (changed[3] > 0.5).long(), "label": self.batch["label"][row]}


def _resized(file: Image.Image) -> np.ndarray:
    height = round(file.height * SHOWN / file.width)
    return np.asarray(file.convert("RGB").resize((SHOWN, height), Image.Resampling.LANCZOS))
