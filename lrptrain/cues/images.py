"""What cues of images share: which pixels are meant, and how they are taken from another image."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch.annotations import IGNORED, boxes_to_mask
from lrptrain.batch.call import IMAGES
from lrptrain.batch.sizes import is_volume
from lrptrain.cues.cue import Batch, Cue
from lrptrain.cues.painting import Images, Pixels, dilate, inpainted

Where = Literal["image", "outside", "evidence"]
"""All of an image, what lies outside of the evidence, or the evidence."""
OF = {"image": "of the image", "outside": "outside the annotation", "evidence": "of the annotated object"}


def mask_in(batch: Batch) -> Tensor:
    """Return 1 evidence, 0 not, 255 ignored, of a mask or of boxes, at the images' size; all ignored without either."""
    _, images = image_of(batch)
    return annotation_in(batch, tuple(images.shape[2:]))


def pixels_of(where: Where, batch: Batch) -> Pixels:
    """Return which pixels are meant; none of a sample without evidence, unless it is the whole image."""
    _, images = image_of(batch)
    everything = torch.ones_like(images[:, 0], dtype=torch.bool)
    if where == "image":
        return everything
    mask = mask_in(batch)
    evidence = mask == 1
    if where == "evidence":
        return evidence
    return (mask == 0) & evidence.flatten(1).any(1).view(-1, *[1] * (mask.ndim - 1))


def without_evidence(batch: Batch) -> Images:
    """Return images whose evidence is painted over from what surrounds it: as sources, they give none of it.

    What is ignored, such as the edge of an object in a trimap, may hold some of it, and goes too, where any pixel is
    known to be outside.
    """
    _, images = image_of(batch)
    mask = mask_in(batch)
    outside = mask == 0
    is_told = outside.flatten(1).any(1).view(-1, *[1] * (mask.ndim - 1))
    hidden = torch.where(is_told, ~outside, mask == 1)
    return inpainted(images, dilate(hidden, default_margin(tuple(images.shape[2:]))))


def pasted(batch: Batch, sources: Images, region: Bool[Tensor, " batch *places"]) -> dict[str, Any]:
    """Return the samples with a region of other images, of all channels or of some."""
    name, images = image_of(batch)
    region = region if region.ndim == images.ndim else region[:, None]
    changed = torch.where(region, sources.to(images.dtype), images)
    return {**batch, name: changed.movedim(2, 1) if _has_channels_second(batch) else changed}


class Part(Cue):
    """A part of images: a sample takes what its source has there, outside of annotations none of its evidence."""

    @abstractmethod
    def locate(self, batch: Batch) -> Bool[Tensor, " batch *places"]:
        """Return where it lies, in all channels or in some."""

    def changed(self, batch: Batch, sources: Batch) -> Bool[Tensor, " batch *places"]:
        """Return what samples take of their sources."""
        return self.locate(batch)

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`."""
        given = without_evidence(sources) if self.is_outside else image_of(sources)[1]
        return pasted(batch, given, self.changed(batch, sources))


def image_of(batch: Mapping[str, Tensor]) -> tuple[str, Tensor]:
    """Return the name of the images in a batch, and the images; of videos and series, with their channels first."""
    name, images = next((name, batch[name]) for name in IMAGES if name in batch)
    return name, images.movedim(2, 1) if _has_channels_second(batch) else images


def _has_channels_second(batch: Mapping[str, Tensor]) -> bool:
    """Return whether frames come before channels, or the time of series, which is the longer axis."""
    images = next(batch[name] for name in IMAGES if name in batch)
    return are_videos(batch) or (images.ndim == 3 and images.shape[1] > images.shape[2])


def are_videos(batch: Mapping[str, Tensor]) -> bool:
    """Return whether a batch is of videos, whose frames come before their channels."""
    images = next(batch[name] for name in IMAGES if name in batch)
    return images.ndim == 5 and not is_volume(images[0])


def annotation_in(batch: Mapping[str, Tensor], size: tuple[int, ...], index: int | tuple[int, ...] = 0) -> Tensor:
    """Return 1 evidence, 0 not, 255 ignored, at the images' size; all ignored without an annotation."""
    # Of series with their time first, a mask is read as that of rows.
    mask = batch.get("mask", batch.get("rationale"))
    if mask is not None:
        mask = mask[:, index] if mask.ndim == len(size) + 2 else mask
        return _enlarged(mask[:, None].float(), size, torch.float32)[:, 0]
    if "boxes" in batch:
        return boxes_to_mask(batch["boxes"], (size[0], size[1])).float()
    images = image_of(batch)[1]
    return torch.full((len(images), *size), IGNORED, device=images.device)


def _enlarged(values: Tensor, size: tuple[int, ...], dtype: torch.dtype = torch.bool) -> Tensor:
    """Return each value over all pixels that are nearest to it."""
    return F.interpolate(values, size, mode="nearest-exact").to(dtype)


def default_margin(size: tuple[int, ...]) -> int:
    """Return how many pixels around the evidence belong to it where something is painted over: 1 up to 111, 4 at 224.

    Painting over continues what is kept: from the very edge of the evidence, it would spread that over the image. And
    masks seldom hold the very edge of an object. More would hide what lies next to it: with 2 of 48 pixels, a rim of
    two pixels that told the answer was not found. Swaps keep none of it, as they leave nothing to be continued.
    """
    return max(1, min(size) // 56)
