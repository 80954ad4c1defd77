"""What cues of images share: which pixels are meant, and how they are taken from another image."""

from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from lrptrain.cues.cue import Batch
from lrptrain.intervention.images import Images, Pixels, dilate, inpainted
from lrptrain.intervention.regions import annotation_in, image_of
from lrptrain.intervention.swap import default_margin

Where = Literal["image", "outside", "evidence"]
"""All of an image, what lies outside of the evidence, or the evidence."""
OF = {"image": "of the image", "outside": "outside the annotation", "evidence": "of the annotated object"}


def mask_in(batch: Batch) -> Tensor:
    """Return 1 evidence, 0 not, 255 ignored, of a mask or of boxes, at the images' size; all ignored without either."""
    _, images = image_of(batch)
    return annotation_in(batch, (images.shape[2], images.shape[3]))


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
    return (mask == 0) & evidence.flatten(1).any(1)[:, None, None]


def without_evidence(batch: Batch) -> Images:
    """Return images whose evidence is painted over from what surrounds it: as donors, they give none of it."""
    _, images = image_of(batch)
    return inpainted(images, dilate(mask_in(batch) == 1, default_margin((images.shape[2], images.shape[3]))))


def pasted(batch: Batch, donors: Images, region: Bool[Tensor, "batch height width"]) -> dict[str, Any]:
    """Return the samples with a region of other images."""
    name, images = image_of(batch)
    return {**batch, name: torch.where(region[:, None], donors.to(images.dtype), images)}
