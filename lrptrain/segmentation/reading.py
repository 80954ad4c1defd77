"""What an export reads of a user's batch: images, the classes they show, and true masks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from lrptrain.batch import IMAGES, BatchAdapter, read_batch
from lrptrain.batch.annotations import IGNORED


@dataclass(frozen=True)
class Pictures:
    """A batch of images.

    Attributes:
        images: As the model reads them.
        names: One per image, of its files.
        shown: The classes by label: a number per image (negative: none) or one 0 or 1 per class; None without labels.
        masks: As the batch has them, None without.
    """

    images: Float[Tensor, "batch 3 height width"]
    names: Sequence[int | str]
    shown: Tensor | None
    masks: Tensor | None

    def rows(self, rows: Sequence[int]) -> "Pictures":
        """Some of the images."""
        chosen = list(rows)
        shown, masks = (None if x is None else x[chosen] for x in (self.shown, self.masks))
        return Pictures(self.images[chosen], [self.names[row] for row in chosen], shown, masks)


def read_pictures(batch: Any, number: Callable[[int], int] = int, adapter: BatchAdapter | None = None) -> Pictures:
    """Read a batch in the form that the callbacks take, whose labels may also be one 0 or 1 per class.

    Args:
        batch: See `lrptrain.batch.read_batch`.
        number: Of each row's image in the dataset, its name without a `sample_id`.
        adapter: Brings a batch of another form to the names of the contract.

    Raises:
        ValueError: If there is no image, or entries differ in length.
    """
    batch = adapter(batch) if adapter is not None else batch
    several: Tensor | None = None
    if isinstance(batch, Sequence) and len(batch) > 1 and getattr(batch[1], "ndim", 1) == 2:
        first, several, *rest = batch
        batch = (first, None, *rest)
    elif isinstance(batch, Mapping):
        several = next((batch[key] for key in ("label", "labels") if getattr(batch.get(key), "ndim", 1) == 2), None)
        if several is not None:
            batch = {key: value for key, value in batch.items() if key not in ("label", "labels")}
    known = read_batch(batch)
    images = next((known[name] for name in IMAGES if name in known), None)
    if images is None or images.ndim != 4:
        raise ValueError(
            "seeds are made of images: the batch has no 'image' or 'pixel_values' [batch, 3, height, width]"
        )
    if several is not None and len(several) != len(images):
        raise ValueError(f"the entries of a batch differ in length: {len(images)} images, {len(several)} labels")
    masks = known.get("mask")
    return Pictures(
        images=images,
        names=known.get("sample_id", [number(row) for row in range(len(images))]),
        shown=known.get("label") if several is None else several,
        masks=masks if masks is not None and masks.ndim == 3 else None,
    )


def labelled(shown: Tensor | None, classes: int) -> Bool[Tensor, "batch classes"]:
    """Which classes the images show, by their labels.

    Raises:
        ValueError: If there is no label, or one is no class.
    """
    if shown is None:
        raise ValueError("the batches have no label: give them one, or take present='predicted'")
    if shown.ndim == 2:
        if shown.shape[1] != classes:
            raise ValueError(f"labels have {shown.shape[1]} classes, the model has {classes}")
        return shown > 0.5
    if shown.numel() and int(shown.max()) >= classes:
        raise ValueError(f"the label {int(shown.max())} is no class of the model, which has {classes}")
    return F.one_hot(shown.long().clamp(min=0), classes).bool() & (shown >= 0)[:, None]


def true_masks(
    pictures: Pictures, present: Bool[Tensor, "batch classes"], holds: Literal["evidence", "classes"]
) -> UInt8[Tensor, "batch height width"]:
    """True masks at the images' size (nearest): 0 background, 1 + class, 255 ignored; all 255 where there is none.

    Args:
        pictures: With masks, or without.
        present: Which classes the images show.
        holds: What the masks hold, see `Recipe`. Evidence of an image with several classes, or none, is of no use.

    Raises:
        ValueError: If a mask has a value that is none of those.
    """
    size, most = pictures.images.shape[-2:], 1 if holds == "evidence" else present.shape[1]
    if pictures.masks is None:
        return torch.full((len(present), *size), IGNORED, dtype=torch.uint8, device=present.device)
    masks = pictures.masks.to(present.device)
    if masks.shape[-2:] != size:
        masks = F.interpolate(masks[:, None].float(), size, mode="nearest-exact")[:, 0]
    masks = masks.to(torch.uint8)
    highest = int((masks * (masks != IGNORED)).max())
    if highest > most:
        hint = ", or masks='classes' if they hold 1 + class" if holds == "evidence" else ""
        raise ValueError(f"a mask has the value {highest}: 0..{most} and 255 (ignored) are known{hint}")
    if holds == "classes":
        return masks
    value = (present.long().argmax(1) + 1).to(torch.uint8)[:, None, None]
    single = (present.sum(1) == 1)[:, None, None]
    return torch.where(masks == 1, value, masks).masked_fill(~single, IGNORED)
