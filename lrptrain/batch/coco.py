"""Objects as COCO annotates them (polygons, run lengths, boxes, crowds), as one mask of evidence per image.

`coco_mask` draws one image's objects. `CocoTransforms` does it in the dataset, where what crops and flips the image
moves the mask, too; `CocoAdapter` in a batch whose images were resized at most.

Examples:
    >>> from lrptrain.batch.coco import *
    >>> objects = [{"bbox": [0, 0, 2, 1], "category_id": 3, "iscrowd": 0}]
    >>> coco_mask(objects, (2, 3)), only_category(objects)
    (tensor([[1, 1, 0],
            [0, 0, 0]], dtype=torch.uint8), 3)
    >>> mask_of_runs([2, 1], (1, 3)), mask_of_polygons([[0, 0, 2, 0, 2, 1, 0, 1]], (1, 3)), run_lengths("21")
    (array([[False, False,  True]]), array([[ True,  True, False]]), [2, 1])
    >>> adapter = CocoAdapter(categories=[3, 7])  # RelevanceMonitor(batch_adapter=adapter)
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from lrptrain.batch.annotations import IGNORED, boxes_to_mask
from lrptrain.batch.checks import check_aspect_ratio
from lrptrain.batch.formats import coco_boxes

Objects = Sequence[Mapping[str, Any]]
"""The annotations of one image, as `torchvision.datasets.CocoDetection` gives them."""


def run_lengths(counts: str | bytes) -> list[int]:
    """Return the run lengths in the compressed string of COCO's API.

    A number is written in groups of 5 bits, the lowest first, each as a character from "0" on; the sixth bit says that
    another group follows, and the fifth bit of the last group is the sign. From the fourth number on it is the
    difference to the last but one.

    Source: `rleFrString` of https://github.com/cocodataset/cocoapi.

    Raises:
        ValueError: If the string holds another character, or ends within a number.
    """
    codes = np.frombuffer(counts.encode() if isinstance(counts, str) else counts, np.uint8).astype(np.int64) - 48
    if codes.size and (codes.min() < 0 or codes.max() > 63 or codes[-1] & 32):
        raise ValueError("'counts' of a segmentation is no string of COCO's run lengths")
    runs: list[int] = []
    number = 0
    shift = 0
    for code in codes.tolist():
        number |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:
            number -= 1 << shift  # two's complement
        runs.append(number + runs[-2] if len(runs) > 2 else number)
        number = 0
        shift = 0
    return runs


def mask_of_runs(counts: Sequence[int] | str | bytes, size: tuple[int, int]) -> Bool[np.ndarray, "height width"]:
    """Return the mask that run lengths describe: of 0 and of 1 in turn, beginning with 0, column by column.

    Args:
        counts: The run lengths, or COCO's compressed string of them.
        size: Height and width.

    Raises:
        ValueError: If the runs do not cover the image exactly.
    """
    runs = np.asarray(run_lengths(counts) if isinstance(counts, str | bytes) else counts, dtype=np.int64)
    if (runs < 0).any() or runs.sum() != size[0] * size[1]:
        raise ValueError(f"the run lengths of a segmentation cover {runs.sum()} pixels, and not {size[0]} x {size[1]}")
    values = np.arange(len(runs)) % 2 == 1
    return np.repeat(values, runs).reshape(size, order="F")


def mask_of_polygons(polygons: Sequence[Sequence[float]], size: tuple[int, int]) -> Bool[np.ndarray, "height width"]:
    """Draw polygons: a pixel belongs to one if its centre lies inside, by the even-odd rule, as for `boxes_to_mask`.

    Args:
        polygons: Each as `[x1, y1, x2, y2, ...]` in pixels from the upper left corner; what lies outside is cut off.
        size: Height and width.

    Returns:
        The union. A polygon between the centres is drawn as the pixel in its middle.

    Raises:
        ValueError: If a polygon has fewer than 3 corners, or a coordinate without its other one.
    """
    drawn = np.zeros(size, dtype=bool)
    for polygon in polygons:
        corners = np.asarray(polygon, dtype=np.float64)
        if corners.ndim != 1 or len(corners) < 6 or len(corners) % 2 or not np.isfinite(corners).all():
            raise ValueError("a polygon of a segmentation is [x1, y1, x2, y2, x3, y3, ...], at least 3 corners")
        drawn |= _drawn(corners.reshape(-1, 2), size)
    return drawn


def _drawn(corners: Float[np.ndarray, "corners 2"], size: tuple[int, int]) -> Bool[np.ndarray, "height width"]:
    height, width = size
    centres = np.arange(height) + 0.5
    crossings = np.zeros((height, width + 1), dtype=np.int64)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        # Half-open, so that a corner at a row's centre is crossed by one of its two edges; level edges by none.
        rows = np.nonzero((min(y1, y2) <= centres) & (centres < max(y1, y2)))[0]
        x = x1 + (centres[rows] - y1) * (x2 - x1) / (y2 - y1) if len(rows) else np.zeros(0)
        # The first pixel whose centre lies right of the edge: inside begins or ends there.
        np.add.at(crossings, (rows, np.clip(np.ceil(x - 0.5), 0, width).astype(np.int64)), 1)
    inside = np.cumsum(crossings[:, :width], axis=1) % 2 == 1
    column, row = np.floor((corners.min(0) + corners.max(0)) / 2).astype(np.int64)
    if not inside.any() and 0 <= row < height and 0 <= column < width:
        inside[row, column] = True
    return inside


def coco_mask(
    objects: Objects, size: tuple[int, int], categories: Collection[int] | None = None
) -> UInt8[Tensor, "height width"]:
    """Return the evidence in one image: the union of its objects.

    Args:
        objects: The annotations of the image, each with `segmentation` (polygons, or `counts` and `size`), or `bbox`
            (x, y, width, height) alone; `category_id` and `iscrowd`.
        size: Height and width of the image that was annotated.
        categories: The `category_id` of what is evidence; None for all.

    Returns:
        1 on objects, 0 elsewhere, 255 on crowds, in which nobody marked the single objects; 255 throughout for an
        image without any annotation.

    Raises:
        ValueError: If an annotation cannot be drawn.
    """
    if not objects:
        return torch.full(size, IGNORED, dtype=torch.uint8)
    evidence = np.zeros(size, dtype=bool)
    crowds = np.zeros(size, dtype=bool)
    for each in objects:
        if categories is not None and each.get("category_id") not in categories:
            continue
        (crowds if each.get("iscrowd") else evidence)[_object_mask(each, size)] = True
    return torch.from_numpy(np.where(evidence, 1, np.where(crowds, IGNORED, 0)).astype(np.uint8))


def _object_mask(annotation: Mapping[str, Any], size: tuple[int, int]) -> Bool[np.ndarray, "height width"]:
    segmentation = annotation.get("segmentation")
    if isinstance(segmentation, Mapping):
        stated = tuple(segmentation.get("size", size))
        if stated != size:
            raise ValueError(f"a segmentation of {stated} was made for an image of another size than {size}")
        return mask_of_runs(segmentation["counts"], size)
    if segmentation:
        return mask_of_polygons(segmentation, size)
    if annotation.get("bbox") is None:
        raise ValueError(f"an annotation of COCO needs 'segmentation' or 'bbox', not {sorted(annotation)}")
    corners = coco_boxes(torch.tensor(annotation["bbox"], dtype=torch.float64).view(1, 1, 4))
    return (boxes_to_mask(corners, size)[0] == 1).numpy()


def only_category(objects: Objects) -> int | None:
    """Return the `category_id` of an image whose objects are all of one category; None for any other image."""
    present = {each["category_id"] for each in objects}
    return present.pop() if len(present) == 1 else None


@dataclass(frozen=True)
class CocoTransforms:
    """Makes samples of a `CocoDetection` ones of the contract: `CocoDetection(..., transforms=CocoTransforms(...))`.

    Attributes:
        transforms: Those of `torchvision.transforms.v2` for the image. They crop, flip and resize the mask as well.
        categories: The `category_id` of each class, in the order of the logits; without them there are no labels.
        label: Which category an image is of, None for none; by default the only one among its objects.
    """

    transforms: Callable[..., Any]
    categories: Sequence[int] | None = None
    label: Callable[[Objects], int | None] = only_category

    def __call__(self, image: Any, objects: Objects) -> tuple[Any, dict[str, Any]]:
        """Return the image, with its `mask` and, with `categories`, its `label`.

        The mask is the union of the objects of the label's class, or without a label of all.
        """
        from torchvision import tv_tensors

        label, evident = _label_and_evident(objects, self.categories, self.label)
        mask = coco_mask(objects, (image.height, image.width), evident)
        image, mask = self.transforms(image, tv_tensors.Mask(mask))
        target = {"mask": mask.as_subclass(Tensor)}
        return image, target if self.categories is None else {**target, "label": label}


@dataclass(frozen=True)
class CocoAdapter:
    """Brings batches (images, annotations) to the contract: `batch_adapter=CocoAdapter(images=dataset.coco.imgs)`.

    Batches are what `tuple(zip(*samples))` as `collate_fn` makes of the samples of a `CocoDetection`, also after
    `torchvision.datasets.wrap_dataset_for_transforms_v2`, which moves masks with their images.

    Attributes:
        images: Height and width of each picture by its id, as `CocoDetection.coco.imgs` holds them; needed for polygons
            and boxes.
        categories: As for `CocoTransforms`.
        label: As for `CocoTransforms`.
        stretched: Whether images were resized to another shape, as by `Resize((224, 224))`, and masks are to be.
            Otherwise an image of another shape than its picture was cropped, and is refused.
    """

    images: Mapping[int, Mapping[str, Any]] | None = None
    categories: Sequence[int] | None = None
    label: Callable[[Objects], int | None] = only_category
    stretched: bool = False

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Return `image`, `mask` and, with `categories`, `label` of a batch."""
        images, targets = _columns(batch)
        size = (int(images.shape[-2]), int(images.shape[-1]))
        read = [self._sample(target, size) for target in targets]
        columns: dict[str, Any] = {"image": images, "mask": torch.stack([mask for mask, _ in read])}
        return columns if self.categories is None else {**columns, "label": torch.tensor([label for _, label in read])}

    def _sample(self, target: Any, size: tuple[int, int]) -> tuple[UInt8[Tensor, "height width"], int]:
        wrapped = isinstance(target, Mapping)
        objects: Objects = _unwrapped(target) if wrapped else target
        label, evident = _label_and_evident(objects, self.categories, self.label)
        if not objects:
            return coco_mask(objects, size), label
        if wrapped and "masks" in target:
            chosen = torch.tensor([evident is None or each["category_id"] in evident for each in objects])
            mask = (target["masks"].as_subclass(Tensor)[chosen] != 0).any(0).to(torch.uint8)
        else:
            mask = coco_mask(objects, self._picture_size(objects), evident)
        if not self.stretched:
            check_aspect_ratio((mask.shape[0], mask.shape[1]), size)
        resized = torch.nn.functional.interpolate(mask[None, None].float(), size, mode="nearest-exact")
        return resized[0, 0].to(torch.uint8), label

    def _picture_size(self, objects: Objects) -> tuple[int, int]:
        for each in objects:
            if isinstance(each.get("segmentation"), Mapping):
                return tuple(each["segmentation"]["size"])
        picture = (self.images or {}).get(objects[0].get("image_id", -1))
        if picture is None:
            raise ValueError(
                "nothing says how large the picture was that a polygon or a box was drawn on: pass "
                "CocoAdapter(images=dataset.coco.imgs)"
            )
        return picture["height"], picture["width"]


def _columns(batch: Any) -> tuple[Tensor, Sequence[Any]]:
    """Return stacked images, and the annotations of each."""
    if not isinstance(batch, Sequence) or not len(batch):
        raise ValueError(f"a batch must be (images, annotations), not {type(batch).__name__}")
    pairs = all(isinstance(each, tuple | list) and len(each) == 2 and not isinstance(each[1], Tensor) for each in batch)
    # (images, annotations) looks like two pairs where each holds two: only images are tensors.
    if pairs and all(isinstance(each[0], Tensor) for each in batch):
        batch = tuple(zip(*batch, strict=True))
    if len(batch) != 2 or len(batch[0]) != len(batch[1]):
        raise ValueError("a batch must be (images, annotations), as collate_fn=lambda samples: tuple(zip(*samples))")
    images, targets = batch
    sizes = sorted({tuple(getattr(image, "shape", ())) for image in images})
    if len(sizes) != 1 or len(sizes[0]) != 3:
        raise ValueError(f"images of a batch must be tensors of one size, not {sizes}: resize them in the dataset")
    return images if isinstance(images, Tensor) else torch.stack(
        [image.as_subclass(Tensor) for image in images]
    ), targets


def _unwrapped(target: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a target with `annotations`, or with torchvision's `labels` beside its `masks`."""
    if "annotations" in target:
        return list(target["annotations"])
    labels = target.get("labels", [])
    if len(labels) and "masks" not in target:
        raise ValueError(f"a target with {sorted(target)} has no 'masks': name them in target_keys, beside 'labels'")
    return [{"category_id": int(label)} for label in labels]


def _label_and_evident(
    objects: Objects, categories: Sequence[int] | None, choose: Callable[[Objects], int | None]
) -> tuple[int, Collection[int] | None]:
    """Return the index of the class of an image, -1 for none, and the categories whose objects are evidence."""
    category = None if categories is None else choose([each for each in objects if each["category_id"] in categories])
    if categories is None or category is None:
        return -1, categories
    label = list(categories).index(category)
    return label, (categories[label],)
