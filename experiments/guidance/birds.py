"""Waterbirds-100: every training bird stands on its own background."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

from experiments.data import dataset
from experiments.guidance.measures import fill_outside
from experiments.vision import MEAN, STD, vit
from lrptrain.batch.annotations import boxes_to_mask

SIZE, ZOOM = 32, 0.6
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Birds:
    """Images, normalised, with the boxes drawn, the birds (0 land, 1 water) and the places (likewise)."""

    image: Tensor
    mask: Tensor
    label: Tensor
    place: Tensor

    def chosen(self, rows: Tensor) -> "Birds":
        return Birds(self.image[rows], self.mask[rows], self.label[rows], self.place[rows])


def birds(
    split: str,
    root: Path | None = None,
    size: int = SIZE,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> Birds:
    """One split, squeezed to squares of that size and normalised so."""
    root = root or dataset("waterbirds")
    with (root / "metadata.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == str(SPLITS.index(split))]
    images, boxes = zip(*(_read(root, row, size) for row in rows), strict=True)
    centre, spread = (torch.tensor(x).view(3, 1, 1) for x in (mean, std))
    label, place = (torch.tensor([int(row[name]) for row in rows]) for name in ("y", "place"))
    mask = boxes_to_mask(torch.tensor(boxes)[:, None], (size, size))
    return Birds((torch.stack(images) - centre) / spread, mask, label, place)


def _read(root: Path, row: dict[str, str], size: int) -> tuple[Tensor, list[float]]:
    with Image.open(root / "images" / row["img_filename"]) as file:
        picture, (width, height) = file.convert("RGB").resize((size, size), Image.Resampling.LANCZOS), file.size
    x, y, w, h = (float(row[f"bbox_{name}"]) for name in "xywh")
    corners = np.array([x, y, x + w, y + h]) * size / np.array([width, height, width, height])
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255, corners.tolist()


class Augmented(Dataset):
    """Random windows and mirror images, with their masks."""

    def __init__(self, data: Birds) -> None:
        self.data = data
        self.transform = v2.Compose(
            [v2.RandomResizedCrop(SIZE, (ZOOM, 1.0), antialias=True), v2.RandomHorizontalFlip()]
        )

    def __len__(self) -> int:
        return len(self.data.label)

    def __getitem__(self, row: int) -> dict[str, Any]:
        data = self.data
        image, mask = self.transform(tv_tensors.Image(data.image[row]), tv_tensors.Mask(data.mask[row]))
        return {
            "image": image.as_subclass(Tensor),
            "mask": mask.as_subclass(Tensor),
            "label": data.label[row],
            "group": data.label[row],
        }


def network(seed: int) -> nn.Module:
    """The small pre-trained ViT."""
    torch.manual_seed(seed)
    return vit(2, SIZE, dataset("vit"))


def alone(data: Birds) -> Birds:
    """Nothing but what lies in the boxes."""
    return Birds(fill_outside(data.image, data.mask), data.mask, data.label, data.place)
