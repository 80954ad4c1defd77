"""Scenes of digits, written as folders in the form of Pascal VOC and of COCO."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.class_specific.scenes import Scenes, digit_pools, digit_scenes
from lrptrain.data.pictures import write_image, write_mask

COUNTS = {"train": 2000, "val": 200, "test": 200}
CLASSES = tuple(f"digit {number}" for number in range(10))
ALONE, ALIKE = 0.4, 0.5
"""Shares of the scenes with one digit, and of the others with two of one class."""


def drawn(seed: int) -> dict[str, Scenes]:
    """The scenes of each split; those of the test are the same for all seeds."""
    pools = digit_pools(seed)
    return {
        split: digit_scenes(pools[split], count, torch.Generator().manual_seed(10), ALONE, ALIKE)
        for split, count in COUNTS.items()
    }


def of_classes(scenes: Scenes) -> Tensor:
    """0 background, 1 + class; where two things lie upon one another, the second."""
    first, second = ((scenes.masks[:, i] == 1) * (1 + scenes.labels[:, i])[:, None, None] for i in (0, 1))
    return torch.where(second > 0, second, first).to(torch.uint8)


def kinds(scenes: Scenes) -> list[str]:
    """How many things of how many classes a scene shows."""
    names = {True: "two of one class", False: "two of two classes"}
    return ["one thing" if b < 0 else names[a == b] for a, b in scenes.labels.tolist()]


def write_voc(folder: Path, scenes: dict[str, Scenes]) -> None:
    """Write `JPEGImages`, `ImageSets/Segmentation`, `Annotations` and `SegmentationClass`."""
    for name in ("JPEGImages", "ImageSets/Segmentation", "Annotations", "SegmentationClass"):
        (folder / name).mkdir(parents=True)
    for split, own in scenes.items():
        names = [f"{split}_{number:04d}" for number in range(len(own.labels))]
        (folder / "ImageSets/Segmentation" / f"{split}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        for name, image, mask, labels in zip(names, _pixels(own), of_classes(own), own.labels.tolist(), strict=True):
            write_image(folder / "JPEGImages" / f"{name}.jpg", image)
            write_mask(folder / "SegmentationClass" / f"{name}.png", mask)
            objects = [f"<object><name>{CLASSES[label]}</name></object>" for label in labels if label >= 0]
            text = f"<annotation>{''.join(objects)}</annotation>"
            (folder / "Annotations" / f"{name}.xml").write_text(text, encoding="utf-8")


def write_coco(folder: Path, scenes: dict[str, Scenes]) -> None:
    """Write a folder of images and `annotations/instances_*.json` for each split, with run lengths."""
    (folder / "annotations").mkdir(parents=True)
    categories = [{"id": 10 + number, "name": name} for number, name in enumerate(CLASSES)]
    for split, own in scenes.items():
        (folder / split).mkdir()
        images: list[dict[str, Any]] = []
        objects: list[dict[str, Any]] = []
        for number, (image, masks, labels) in enumerate(zip(_pixels(own), own.masks, own.labels.tolist(), strict=True)):
            name = f"{split}_{number:04d}.jpg"
            write_image(folder / split / name, image)
            height, width = image.shape[1:]
            images.append({"id": number, "file_name": name, "height": height, "width": width})
            for mask, label in zip(masks, labels, strict=True):
                if label >= 0:
                    runs = {"size": [height, width], "counts": _runs(mask)}
                    # The first is written first, as in VOC's form: its area is called the larger one.
                    what = {"image_id": number, "category_id": 10 + label, "iscrowd": 0, "area": -len(objects)}
                    objects.append({"id": len(objects), "segmentation": runs, **what})
        said = {"images": images, "annotations": objects, "categories": categories}
        (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(said), encoding="utf-8")


def _pixels(scenes: Scenes) -> Tensor:
    return (scenes.images * 0.25 + 0.5).clamp(0, 1)


def _runs(mask: Tensor) -> list[int]:
    """Lengths of 0 and 1 in turn, beginning with 0, column by column."""
    values = mask.T.flatten().int()
    changes = (values.diff(prepend=torch.zeros(1, dtype=torch.int32)) != 0).nonzero()[:, 0].tolist()
    ends = [0, *changes, len(values)]
    return [end - start for start, end in pairwise(ends)]
