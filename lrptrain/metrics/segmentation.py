"""Relevance as a segmentation: the ImageNet-Segmentation protocol of Chefer, Gur, Wolf (CVPR 2021), section 4.

The map is brought to the mask's size, scaled to [0, 1] per image and cut at its mean; ignored pixels are not counted.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Num, Shaped
from torch import Tensor
from torchmetrics import Metric

from lrptrain.batch.annotations import IGNORED, split_values
from lrptrain.metrics.base import add_by_row, class_index, leave_compute_groups, nan_where_undefined, state_rows
from lrptrain.metrics.interval import (
    empty_moments,
    mean_with_interval,
    merge_moments,
    moments_by_row,
    pooled_interval,
    products_of_counts,
)
from lrptrain.metrics.ranking import average_precision
from lrptrain.relevance.propagation.propagator import at_least_float32


def relative_map(
    scores: Float[Tensor, "batch tokens"], grid: tuple[int, int], size: tuple[int, int]
) -> Float[Tensor, "batch height width"]:
    """Return relevance up-sampled bilinearly and scaled per image by its minimum and maximum.

    Args:
        scores: Relevance of the patches, row by row.
        grid: Rows and columns of patches.
        size: Height and width of the result.

    Returns:
        In [0, 1]; a constant map is all 0.

    Raises:
        ValueError: If `grid` does not hold the tokens.
    """
    if grid[0] * grid[1] != scores.shape[-1]:
        raise ValueError(f"a grid of {grid} holds {grid[0] * grid[1]} tokens, got {scores.shape[-1]}: patches only")
    patches = at_least_float32(scores).unflatten(-1, (1, *grid))
    image = F.interpolate(patches, size, mode="bilinear", align_corners=False).squeeze(1)
    image = image - image.amin((1, 2), keepdim=True)
    top = image.amax((1, 2), keepdim=True)
    return torch.where(top > 0, image / top, 0)


def segmentation_confusion(
    scores: Float[Tensor, "batch tokens"], grid: tuple[int, int], mask: Shaped[Tensor, "batch height width"]
) -> Int[Tensor, "batch 2 2"]:
    """Count pixels per image by `[truth, prediction]`: 0 background, 1 foreground, predicted above the map's mean.

    Args:
        scores: Relevance of the patches. A constant map predicts background.
        grid: Rows and columns of patches.
        mask: 1 evidence, 0 not, 255 ignored.

    Returns:
        Counts of the pixels that are not ignored; all 0 without annotation or with scores that are not finite. Sum over
        images for a whole set, then ask `mean_iou` and `pixel_accuracy`.

    Raises:
        ValueError: If shapes do not fit or the mask holds another value.
    """
    truth, counted = _pixels(scores, mask)
    image = relative_map(scores, grid, (mask.shape[1], mask.shape[2]))
    predicted = image > image.mean((1, 2), keepdim=True)
    # In the order of the matrix: truth 0 with prediction 0 and 1, then truth 1.
    cells = [counted & (truth == bool(t)) & (predicted == bool(p)) for t in (0, 1) for p in (0, 1)]
    return torch.stack([cell.sum((1, 2)) for cell in cells], -1).unflatten(-1, (2, 2))


def pixel_accuracy(confusion: Num[Tensor, "*sets 2 2"]) -> Float[Tensor, "*sets"]:
    """Return the share of correct pixels, in [0, 1], higher is better; nan where nothing is counted."""
    return _diagonal(confusion).sum(-1) / confusion.sum((-2, -1))


def mean_iou(confusion: Num[Tensor, "*sets 2 2"]) -> Float[Tensor, "*sets"]:
    """Return the mean of the intersection over union of foreground and background, in [0, 1], higher is better.

    A class that is neither present nor predicted is left out; nan where nothing is counted.
    """
    both = _diagonal(confusion)
    either = confusion.sum(-1) + confusion.sum(-2) - both
    return (both / either).nanmean(-1)


def segmentation_average_precision(
    scores: Float[Tensor, "batch tokens"],
    grid: tuple[int, int],
    mask: Shaped[Tensor, "batch height width"],
    joint: bool = True,
) -> Float[Tensor, " batch"]:
    """Return the average precision per image of the map as a detector of foreground pixels.

    Args:
        scores: Relevance of the patches.
        grid: Rows and columns of patches.
        mask: 1 evidence, 0 not, 255 ignored.
        joint: Rank the foreground scores m and the background scores 1 - m of all pixels together, as the published
            code does (its mAP of 86.03 is this one). False: foreground only.

    Returns:
        In (0, 1], higher is better; a constant map has 0.5 (`joint`) or the share of foreground. nan without annotation
        or with scores that are not finite; foreground only: also nan where there is no foreground.

    Raises:
        ValueError: If shapes do not fit or the mask holds another value.
    """
    truth, counted = (part.flatten(1) for part in _pixels(scores, mask))
    image = relative_map(scores, grid, (mask.shape[1], mask.shape[2])).flatten(1)
    if joint:
        # A constant map is 0 in both halves, one tie, so that it has the share of positives, 0.5.
        flat = image.amax(-1, keepdim=True) == 0
        image = torch.cat([torch.where(flat, 0, 1 - image), image], -1)
        truth = torch.cat([~truth, truth], -1)
        counted = torch.cat([counted, counted], -1)
    precision = average_precision(torch.where(counted, image, 0), truth, counted)
    return nan_where_undefined(precision, counted.any(-1))


class SegmentationScore(Metric):
    """The segmentation protocol over a set of images.

    `compute()` returns a dict:

    - `value`: mean IoU of foreground and background, from the pixels of all images together,
    - `pixel_accuracy`: from the same pixels,
    - `average_precision`: mean of the per-image average precisions,
    - `low`, `high`, `pixel_accuracy_low` ...: the 95 % intervals over images, by `pooled_interval` for the pooled
      pixels and Student's t for the mean of average precisions; nan below two images,
    - `samples`: images counted, `undefined`: annotated images whose scores were not finite,
    - `per_class`: `[num_classes]` mean IoU by label, nan for classes without images; only with `num_classes`.

    There is no chance level: a constant map predicts background everywhere.

    Args:
        grid: Rows and columns of patches.
        num_classes: How many classes get a value of their own; `update` then needs the labels.
        joint: See `segmentation_average_precision`.
        **kwargs: Passed to `torchmetrics.Metric`.
    """

    key = "segmentation_iou"
    title = "Mean IoU of the map as a segmentation"
    function = staticmethod(segmentation_confusion)
    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    confusion: Tensor
    products: Tensor
    precision: Tensor
    samples: Tensor
    undefined: Tensor

    def __init__(self, grid: tuple[int, int], num_classes: int | None = None, joint: bool = True, **kwargs: object):
        super().__init__(**kwargs)
        self.grid = grid
        self.num_classes = num_classes
        self.joint = joint
        counts = torch.zeros(state_rows(num_classes), 2, 2, dtype=torch.long)
        self.add_state("confusion", counts, dist_reduce_fx="sum")
        self.add_state("products", torch.zeros(4, 4, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("precision", empty_moments(1), dist_reduce_fx=merge_moments)
        for name in ("samples", "undefined"):
            self.add_state(name, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        leave_compute_groups(self)

    def update(
        self,
        scores: Float[Tensor, "batch tokens"],
        mask: Shaped[Tensor, "batch height width"],
        label: Shaped[Tensor, " batch"] | None = None,
    ) -> None:
        """Add a batch."""
        confusion = segmentation_confusion(scores, self.grid, mask)
        precision = segmentation_average_precision(scores, self.grid, mask, self.joint)
        row = class_index(label, self.num_classes, confusion)
        counted = confusion.sum((1, 2)) > 0
        self.confusion = add_by_row(self.confusion, row, confusion, counted)
        self.products = self.products + products_of_counts(confusion.flatten(1))
        new = moments_by_row(precision, torch.zeros_like(row), 1)
        self.precision = merge_moments(torch.stack([self.precision, new]))
        self.samples = self.samples + counted.sum()
        self.undefined = self.undefined + ((mask != IGNORED).flatten(1).any(-1) & ~counted).sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the dict described above."""
        total = self.confusion.sum(0)
        precision = mean_with_interval(self.precision[0])
        result = {
            "value": mean_iou(total),
            **self._pooled(mean_iou, total, ""),
            "pixel_accuracy": pixel_accuracy(total),
            **self._pooled(pixel_accuracy, total, "pixel_accuracy_"),
            "average_precision": precision["value"],
            "average_precision_low": precision["low"],
            "average_precision_high": precision["high"],
            "samples": self.samples,
            "undefined": self.undefined,
        }
        if self.num_classes is not None:
            result["per_class"] = mean_iou(self.confusion)
        return result

    def _pooled(
        self, function: Callable[[Tensor], Tensor], total: Int[Tensor, "2 2"], name: str
    ) -> dict[str, Float[Tensor, ""]]:
        """Return the interval of a function of the pooled confusion."""
        low, high = pooled_interval(
            lambda cells: function(cells.unflatten(0, (2, 2))), total.flatten(), self.products, self.samples
        )
        return {f"{name}low": low, f"{name}high": high}


def _pixels(
    scores: Float[Tensor, "batch tokens"], mask: Shaped[Tensor, "batch height width"]
) -> tuple[Bool[Tensor, "batch height width"], Bool[Tensor, "batch height width"]]:
    """Return the foreground, and which pixels are counted: those not ignored, of images whose scores are finite."""
    if mask.ndim != 3 or len(mask) != len(scores):
        raise ValueError(f"mask must be [{len(scores)}, height, width], got shape {tuple(mask.shape)}")
    truth, valid = split_values(mask, "mask")
    return truth, valid & scores.isfinite().all(-1)[:, None, None]


def _diagonal(confusion: Num[Tensor, "*sets 2 2"]) -> Num[Tensor, "*sets 2"]:
    return confusion.diagonal(dim1=-2, dim2=-1)
