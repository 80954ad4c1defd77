"""Waterbirds-100: every training bird stands on its own background."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from experiments.data import dataset
from experiments.real_models.outlines import outlined
from experiments.real_models.samples import MEAN, STD
from lrptrain.batch.annotations import boxes_to_mask


@dataclass(frozen=True)
class Birds:
    """Images, normalised, with the boxes drawn, the birds (0 land, 1 water) and the places (likewise)."""

    image: Tensor
    mask: Tensor
    label: Tensor
    place: Tensor

    def chosen(self, rows: Tensor) -> "Birds":
        return Birds(self.image[rows], self.mask[rows], self.label[rows], self.place[rows])


def birds(split: str, size: int, outlines: Path | None = None) -> Birds:
    """One split, squeezed to squares of that size and normalised as pretrained models expect it.

    The boxes are people's, or those that `outlined` makes and keeps in a file.
    """
    root = dataset("waterbirds")
    with (root / "metadata.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == str(("train", "val", "test").index(split))]
    images, boxes = zip(*(_read(root, row, size) for row in rows), strict=True)
    label, place = (torch.tensor([int(row[name]) for row in rows]) for name in ("y", "place"))
    mask = boxes_to_mask(torch.tensor(boxes)[:, None], (size, size))
    if outlines is not None:
        mask = outlined([root / "images" / row["img_filename"] for row in rows], size, outlines)
    return Birds((torch.stack(images) - MEAN[:, None, None]) / STD[:, None, None], mask, label, place)


def _read(root: Path, row: dict[str, str], size: int) -> tuple[Tensor, list[float]]:
    with Image.open(root / "images" / row["img_filename"]) as file:
        picture, (width, height) = file.convert("RGB").resize((size, size), Image.Resampling.LANCZOS), file.size
    x, y, w, h = (float(row[f"bbox_{name}"]) for name in "xywh")
    corners = np.array([x, y, x + w, y + h]) * size / np.array([width, height, width, height])
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255, corners.tolist()


def alone(data: Birds, margin: int = 2) -> Birds:
    """What lies in the boxes and a margin of pixels around them, the rest in the mean colour of all the images."""
    kept = torch.nn.functional.max_pool2d((data.mask == 1)[:, None].float(), 2 * margin + 1, 1, margin) > 0
    filled = torch.where(kept, data.image, data.image.mean((0, 2, 3), keepdim=True))
    return Birds(filled, data.mask, data.label, data.place)
