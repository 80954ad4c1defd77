"""Masks and boxes as the common data sets write them, brought to the contract: 1 evidence, 0 not, 255 ignored."""

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor

from lrptrain.batch.annotations import IGNORED


def voc_mask(
    classes: Shaped[Tensor, "batch height width"], label: Int[Tensor, " batch"]
) -> UInt8[Tensor, "batch height width"]:
    """Return the evidence of each sample's class in a mask of Pascal VOC.

    Args:
        classes: The numbers in the palette PNGs: 0 background, 1 + class, 255 the border of an object.
        label: The index of each sample's class, from 0 on; negative without one.

    Returns:
        1 where the class is, 0 where it is not, 255 at borders; 255 throughout for a sample without a label.

    Raises:
        ValueError: If shapes do not fit.
    """
    if classes.ndim != 3 or label.shape != classes.shape[:1]:
        raise ValueError(
            f"masks {list(classes.shape)} must be [batch, height, width], with one label each, not {list(label.shape)}"
        )
    evidence = (classes.long() == label[:, None, None] + 1).to(torch.uint8)
    ignored = (classes == IGNORED) | (label < 0)[:, None, None]
    return evidence.masked_fill(ignored, IGNORED)


def coco_boxes(boxes: Shaped[Tensor, "batch boxes 4"]) -> Float[Tensor, "batch boxes 4"]:
    """Return boxes of COCO, (x, y, width, height) in pixels, by their corners (x1, y1, x2, y2).

    Args:
        boxes: Boxes, padded with all-NaN boxes.

    Raises:
        ValueError: If `boxes` is not `[batch, boxes, 4]`.
    """
    if boxes.ndim != 3 or boxes.shape[-1] != 4:
        raise ValueError(f"boxes must be [batch, boxes, 4] as (x, y, width, height), got shape {tuple(boxes.shape)}")
    boxes = boxes if boxes.is_floating_point() else boxes.float()
    corner, size = boxes.split(2, -1)
    return torch.cat([corner, corner + size], -1)
