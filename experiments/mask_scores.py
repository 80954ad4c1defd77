"""Mean IoU as one number an image, so that its interval is over images, too.

Mean IoU is of the pixels of all images together: no image has one of its own that others add up with. What an image
has is its pull on the whole, the derivative of the mean IoU by the weight of that image. Mean IoU plus pull is one
number an image; their mean is the mean IoU itself, and their spread is that of the mean IoU over other images (the
infinitesimal jackknife, Jaeckel 1972; Efron 1982).
"""

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from lrptrain.batch.annotations import IGNORED


def mean_iou_by_image(
    predicted: UInt8[Tensor, "n height width"], truth: UInt8[Tensor, "n height width"]
) -> Float[Tensor, " n"]:
    """Return, per image, the mean IoU of all plus the image's pull on it.

    Args:
        predicted: 0 background, 1 + class; 255, of no class, misses the truth.
        truth: The same; where it is 255, pixels do not count.

    Returns:
        Numbers whose mean is the mean IoU over the values that are present or predicted somewhere, in float64.
    """
    counted = truth != IGNORED
    values = torch.cat([predicted[counted], truth[counted]]).unique()
    both, either = _pixels(predicted, truth, counted, values[values != IGNORED])
    total = either.sum(0)
    iou = both.sum(0) / total
    # The derivative of each quotient by the weight of an image, times the number of images.
    pull = len(truth) * (both - iou * either) / total
    return (iou + pull).mean(1)


def _pixels(
    predicted: UInt8[Tensor, "n height width"],
    truth: UInt8[Tensor, "n height width"],
    counted: Tensor,
    values: UInt8[Tensor, " values"],
) -> tuple[Float[Tensor, "n values"], Float[Tensor, "n values"]]:
    """Per image and value the pixels that are and are predicted as it, and those that are either."""
    both: list[Int[Tensor, " n"]] = []
    either: list[Int[Tensor, " n"]] = []
    for value in values:
        said = counted & (predicted == value)
        true = counted & (truth == value)
        both.append((said & true).flatten(1).sum(1))
        either.append((said | true).flatten(1).sum(1))
    return torch.stack(both, 1).double(), torch.stack(either, 1).double()
