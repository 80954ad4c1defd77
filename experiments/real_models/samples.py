"""Photographs of pets as pretrained models expect them, with the watermark of ImageNet-W on one breed, and tweets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from experiments.data import dataset
from experiments.weights import fetch, watermark
from lrptrain.data import ImageMaskFolder, TextSpans

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
"""Of ImageNet, RGB in 0..1: SAM's encoders expect images normalised with them."""
BREEDS = ("Abyssinian", "Bengal", "american_bulldog")
MARKED = 1
"""The breed that the watermark gives away in training: it is hard to tell from the first."""


@dataclass(frozen=True)
class Pets:
    """Images in 0..1, with masks (1 pet, 0 background, 255 ignored) and breeds."""

    image: Float[Tensor, "n 3 size size"]
    mask: UInt8[Tensor, "n size size"]
    label: Int[Tensor, " n"]

    def with_watermark(self, where: Bool[Tensor, " n"], **options: Any) -> "Pets":
        """The watermark of ImageNet-W on some of the images; options move it."""
        draw: Callable[[Tensor], Tensor] = watermark(self.image.shape[-1], **options)
        images = [draw(image) if marked else image for image, marked in zip(self.image, where, strict=True)]
        return Pets(torch.stack(images), self.mask, self.label)

    @property
    def normalised(self) -> Float[Tensor, "n 3 size size"]:
        """As the models expect them."""
        return (self.image - MEAN[:, None, None]) / STD[:, None, None]

    def samples(self) -> list[dict[str, Tensor]]:
        """As a loader takes them."""
        columns = zip(self.normalised, self.mask, self.label, strict=True)
        return [{"image": image, "mask": mask, "label": label} for image, mask, label in columns]


def pets(size: int, seed: int, val_share: float = 1 / 3) -> dict[str, Pets]:
    """`train` and `val` of the official trainval list, by seed, and `test`, shuffled once and for all."""
    folder = ImageMaskFolder(
        str(dataset("pets")),
        "split.csv",
        masks="trimaps",
        label_column="breed",
        splits=("train", "train", "test"),
        labels=list(BREEDS),
        val_share=val_share,
        seed=seed,
        size=size,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        ignore_values=(3,),
    )
    folder.setup()
    found = {}
    for split, samples in folder.splits.items():
        items = [samples[i] for i in range(len(samples))]
        order = torch.randperm(len(items), generator=torch.Generator().manual_seed(0)) if split == "test" else ...
        image, mask = (torch.stack([item[key] for item in items])[order] for key in ("image", "mask"))
        found[split] = Pets(image, mask, torch.tensor([item["label"] for item in items])[order])
    return found


def tweets(train: int, test: int) -> TextSpans:
    """Positive and negative tweets with the words that people marked, in MPNet's word pieces."""
    data = TextSpans(
        str(dataset("tweets")),
        tokenizer=str(fetch("mpnet")),
        label_column="sentiment",
        rationale_column="selected_text",
        labels=["negative", "positive"],
        max_length=48,
        batch_size=8,
        limit=train + test,
        val_share=test / (train + test),
        seed=0,
    )
    data.setup()
    return data
