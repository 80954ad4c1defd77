"""Waterbirds-100: every training bird stands on its own background; boxes on all, some or a few of the images."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision import tv_tensors
from torchvision.transforms import v2

from experiments.data import dataset
from experiments.guidance.arms import Arm, Task
from experiments.guidance.fitting import Trained, fit
from experiments.guidance.images import arm_of
from experiments.guidance.measures import accuracy, fill_outside, focus, logits, reliance
from experiments.vision import MEAN, STD, vit
from lrptrain.batch.annotations import IGNORED, boxes_to_mask

GUIDED, SHARES = ("energy", "consistency"), (1.0, 0.1, 0.01)
"""Guided arms, and the share of the training images whose boxes they see."""
SIZE, BUDGET, BATCH, LR, ZOOM = 32, 60, 32, 1e-3, 0.6
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


def with_boxes_on(data: Birds, share: float, seed: int) -> Birds:
    """The same with boxes on a random share of the images, of both classes alike; at least one of each."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.zeros(len(data.label), dtype=torch.bool)
    for label in (0, 1):
        own = (data.label == label).nonzero().flatten()
        kept[own[torch.randperm(len(own), generator=generator)[: max(1, round(share * len(own)))]]] = True
    return Birds(data.image, data.mask.masked_fill(~kept[:, None, None], IGNORED), data.label, data.place)


def network(seed: int) -> nn.Module:
    """The small pre-trained ViT."""
    torch.manual_seed(seed)
    return vit(2, SIZE, dataset("vit"))


def prepared(task: Task) -> tuple[Trained, DataLoader]:
    """The model of a run, and its batches. The upper bound sees the birds alone."""
    arm: Arm = arm_of(task.arm)
    data = birds("train")
    data = alone(data) if arm.clean else with_boxes_on(data, task.setting["boxes"], task.seed)
    module = Trained(network(task.seed), lambda batch: {"x": batch["image"]}, arm, LR)
    generator = torch.Generator().manual_seed(task.seed)
    dataset = Augmented(data)
    sampler = RandomSampler(dataset, replacement=True, num_samples=10**6, generator=generator)  # type: ignore[arg-type]
    return module, DataLoader(dataset, BATCH, sampler=sampler)


def alone(data: Birds) -> Birds:
    """Nothing but what lies in the boxes."""
    return Birds(fill_outside(data.image, data.mask), data.mask, data.label, data.place)


def train(task: Task, cost: float) -> dict[str, float]:
    """One run: trained, then measured on the validation images on their own background, or on all test images."""
    module, batches = prepared(task)
    steps = round(BUDGET / cost)
    torch.manual_seed(task.seed)
    found = {"steps": steps, "seconds": fit(module, batches, steps, task.weight, task.seed)}
    data = birds("val" if task.choosing else "test")
    data = alone(data) if module.arm.clean else data
    own = data.chosen(data.label == data.place)
    scores = logits(module.net, own.image)
    found |= {"accuracy": accuracy(scores, own.label), **reliance(module.net, own.image, own.mask, own.label)}
    return (
        found
        if task.choosing
        else found | _groups(module.net, data) | focus(module.net, data.image, data.label, data.mask)
    )


def _groups(net: nn.Module, data: Birds) -> dict[str, float]:
    scores = logits(net, data.image)
    of = [(data.label == y) & (data.place == place) for y in (0, 1) for place in (0, 1)]
    groups = [accuracy(scores[rows], data.label[rows]) for rows in of]
    return {"accuracy without": float(np.mean(groups)), "worst group": min(groups)}
