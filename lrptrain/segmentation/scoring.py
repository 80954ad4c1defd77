"""How well masks of classes fit the truth: intersection over union, from one confusion matrix of all pixels."""

from typing import Any

import torch
from jaxtyping import Float, Num, UInt8
from torch import Tensor
from torchmetrics.classification import MulticlassConfusionMatrix

from lrptrain.batch.annotations import IGNORED


def class_iou(confusion: Num[Tensor, "*sets truth prediction"]) -> Float[Tensor, "*sets truth"]:
    """Return the intersection over union of every class, in [0, 1]; nan for one neither present nor predicted."""
    classes = confusion.shape[-2]
    # [*sets, classes]: pixels that are and are predicted as the class, and pixels that are either.
    both = confusion[..., :classes].diagonal(dim1=-2, dim2=-1)
    either = confusion.sum(-1) + confusion[..., :classes].sum(-2) - both
    return both / either


class MaskScore(MulticlassConfusionMatrix):
    """Mean IoU over the classes and the background, from the pixels of all images together (as PASCAL VOC counts).

    `compute()` returns a dict: `mean_iou`, over the classes that are present or predicted somewhere, in [0, 1], nan if
    nothing was counted; `per_class`, `[classes + 1]` with the background first, nan for a class that is nowhere; and
    `pixels`, the number of those counted. Where the truth is 255 none is. A prediction of 255 misses the truth.
    """

    key = "miou"
    title = "Mean IoU"
    function = staticmethod(class_iou)
    higher_is_better = True

    def __init__(self, classes: int, **kwargs: Any) -> None:
        # The background, and a last column for predictions of no class.
        super().__init__(classes + 2, ignore_index=IGNORED, validate_args=False, **kwargs)
        self.classes = classes

    def update(
        self, predicted: UInt8[Tensor, "batch height width"], truth: UInt8[Tensor, "batch height width"]
    ) -> None:
        """Add images: 0 background, 1 + class, 255 ignored."""
        if predicted.shape != truth.shape:
            raise ValueError(f"predicted masks are {list(predicted.shape)}, the truth is {list(truth.shape)}")
        for name, mask in (("predicted", predicted), ("true", truth)):
            most = int((mask * (mask != IGNORED)).max()) if mask.numel() else 0
            if most > self.classes:
                raise ValueError(f"a {name} mask has the value {most}: 0..{self.classes} and 255 are known")
        super().update(torch.where(predicted == IGNORED, self.classes + 1, predicted.long()), truth.long())

    def compute(self) -> dict[str, Tensor]:  # type: ignore[override]
        """Return the dict described above."""
        counts = self.confmat[:-1]
        per_class = class_iou(counts)
        return {"mean_iou": per_class.nanmean(), "per_class": per_class, "pixels": counts.sum()}
