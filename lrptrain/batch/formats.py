"""Masks and boxes as the common data sets write them, brought to the contract: 1 evidence, 0 not, 255 ignored.

Examples:
    >>> import torch
    >>> from lrptrain.batch.formats import coco_boxes, voc_boxes, voc_mask
    >>> voc_mask(torch.tensor([[[0, 3, 255]]]), label=torch.tensor([2]))
    tensor([[[  0,   1, 255]]], dtype=torch.uint8)
    >>> coco_boxes(torch.tensor([[[10, 20, 5, 5]]]))
    tensor([[[10., 20., 15., 25.]]])
    >>> box = {"xmin": "1", "ymin": "1", "xmax": "8", "ymax": "4"}
    >>> voc_boxes([{"annotation": {"object": [{"name": "cat", "bndbox": box}]}}])
    tensor([[[0., 0., 8., 4.]]])
"""

from collections.abc import Mapping, Sequence
from typing import Any

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

    Raises:
        ValueError: If `boxes` is not `[batch, boxes, 4]`.
    """
    if boxes.ndim != 3 or boxes.shape[-1] != 4:
        raise ValueError(f"boxes must be [batch, boxes, 4] as (x, y, width, height), got shape {tuple(boxes.shape)}")
    boxes = boxes if boxes.is_floating_point() else boxes.float()
    corner, size = boxes.split(2, -1)
    return torch.cat([corner, corner + size], -1)


def voc_boxes(
    annotations: Sequence[Mapping[str, Any]], categories: Sequence[str] | None = None
) -> Float[Tensor, "batch boxes 4"]:
    """Return the boxes of a batch in the annotations of Pascal VOC, by their corners (x1, y1, x2, y2).

    Args:
        annotations: What torchvision's `VOCDetection` gives beside each image, `{"annotation": {"object": [{"name",
            "bndbox": {"xmin", ...}}, ...]}}`, in pixels that are counted from 1, with the last one inside.
        categories: The name of each sample's class, whose objects are taken; None for all objects.

    Returns:
        Corners in pixels from 0 on, the second one outside, padded with all-NaN boxes; a sample without such an object
        has none, which means that it has no annotation.

    Raises:
        ValueError: If there is not one category per annotation, or an annotation has no objects' list or box.
    """
    if categories is not None and len(categories) != len(annotations):
        raise ValueError(f"{len(annotations)} annotations need as many categories, not {len(categories)}")
    boxes = []
    for row, annotation in enumerate(annotations):
        objects = _voc_objects(annotation)
        wanted = [each for each in objects if categories is None or each.get("name") == categories[row]]
        boxes.append([_voc_box(each) for each in wanted])
    most = max((len(each) for each in boxes), default=0)
    missing = [float("nan")] * 4
    padded = [each + [missing] * (most - len(each)) for each in boxes]
    return torch.tensor(padded, dtype=torch.float32).reshape(len(boxes), most, 4)


def _voc_objects(annotation: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    inner = annotation.get("annotation", annotation)
    objects = inner.get("object") if isinstance(inner, Mapping) else None
    if objects is None:
        raise ValueError(f"an annotation of VOC has 'annotation' with 'object' in it, not only {list(annotation)}")
    # A parser that knows no lists gives a single object as such.
    return [objects] if isinstance(objects, Mapping) else objects


def _voc_box(each: Mapping[str, Any]) -> list[float]:
    box = each.get("bndbox")
    if not isinstance(box, Mapping) or not {"xmin", "ymin", "xmax", "ymax"} <= box.keys():
        raise ValueError(f"an object of VOC has 'bndbox' with xmin, ymin, xmax and ymax, not {box!r}")
    return [float(box["xmin"]) - 1, float(box["ymin"]) - 1, float(box["xmax"]), float(box["ymax"])]
