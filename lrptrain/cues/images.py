"""What cues of images share: which pixels are meant, and how they are taken from another image."""

from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from lrptrain.batch import IMAGES
from lrptrain.batch.annotations import boxes_to_mask
from lrptrain.cues.cue import Batch
from lrptrain.intervention.images import Images, Pixels, dilate, inpainted
from lrptrain.intervention.swap import default_margin

Where = Literal["image", "outside", "evidence"]
"""All of an image, what lies outside of the evidence, or the evidence."""
OF = {"image": "of the image", "outside": "outside the annotation", "evidence": "of the annotated object"}


def images_in(batch: Batch) -> tuple[str, Images]:
    """Return the name of the images in a batch, and the images."""
    return next((name, batch[name]) for name in IMAGES if name in batch)


def mask_in(batch: Batch) -> Tensor | None:
    """Return 1 evidence, 0 not, 255 ignored, `[batch, height, width]`, of a mask or of boxes; None without either."""
    mask, boxes = batch.get("mask"), batch.get("boxes")
    if isinstance(mask, Tensor):
        return mask[:, 0] if mask.ndim == 4 else mask  # of several regions, the first is the evidence
    if isinstance(boxes, Tensor):
        _, images = images_in(batch)
        return boxes_to_mask(boxes, (images.shape[2], images.shape[3]))
    return None


def pixels_of(where: Where, batch: Batch) -> Pixels:
    """Return which pixels are meant; none of a sample without evidence, unless it is the whole image."""
    _, images = images_in(batch)
    everything = torch.ones_like(images[:, 0], dtype=torch.bool)
    if where == "image":
        return everything
    mask = mask_in(batch)
    if mask is None:
        return ~everything
    evidence = mask == 1
    if where == "evidence":
        return evidence
    return (mask == 0) & evidence.flatten(1).any(1)[:, None, None]


def without_evidence(batch: Batch) -> Images:
    """Return images whose evidence is painted over from what surrounds it: as donors, they give none of it."""
    _, images = images_in(batch)
    mask = mask_in(batch)
    if mask is None:
        return images
    return inpainted(images, dilate(mask == 1, default_margin((images.shape[2], images.shape[3]))))


def pasted(batch: Batch, donors: Images, region: Bool[Tensor, "batch height width"]) -> dict[str, Any]:
    """Return the samples with a region of other images."""
    name, images = images_in(batch)
    return {**batch, name: torch.where(region[:, None], donors.to(images.dtype), images)}
