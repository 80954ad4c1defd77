"""From maps of classes to masks: a background threshold, ignored pixels between two, and the best threshold."""

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.segmentation.scoring import class_iou


def label_map(
    maps: Float[Tensor, "batch some height width"], threshold: float, classes: Int[Tensor, " some"] | None = None
) -> UInt8[Tensor, "batch height width"]:
    """Return `pseudo_masks` with two equal thresholds: no pixel is ignored."""
    return pseudo_masks(maps, threshold, threshold, classes)


def pseudo_masks(
    maps: Float[Tensor, "batch some height width"], low: float, high: float, classes: Int[Tensor, " some"] | None = None
) -> UInt8[Tensor, "batch height width"]:
    """Return masks of the highest map at each pixel: 0 for the background, 1 + class, and 255 for ignored pixels.

    Args:
        maps: Maps in 0..1; 0 for absent classes.
        low: Up to this value of the highest map a pixel is background.
        high: Above this value a pixel belongs to the class; between the two it is ignored.
        classes: The numbers of the classes that the maps are of; None for 0, 1, ...
    """
    if not 0 <= low <= high:
        raise ValueError(f"thresholds must be 0 or more, the lower one first, not {low} and {high}")
    if maps.shape[1] >= IGNORED:
        raise ValueError(f"a mask has room for {IGNORED - 1} classes, not {maps.shape[1]}: leave out absent ones")
    value, top = maps.max(1)
    chosen = top if classes is None else classes[top]
    # Ignored up to `high`, then background up to `low`: what lies between the two stays ignored.
    return (chosen + 1).to(torch.uint8).masked_fill(value <= high, IGNORED).masked_fill(value <= low, 0)


def best_threshold(
    maps: Float[Tensor, "batch classes height width"], masks: UInt8[Tensor, "batch height width"]
) -> tuple[float, float]:
    """Return the threshold of the background at which `label_map` fits masks best, and its mean IoU.

    See `ThresholdSweep`, for more images than fit into memory. Take it on a validation split, never on images to score.
    """
    sweep = ThresholdSweep(maps.shape[1])
    sweep.update(maps, masks)
    return sweep.best()


class ThresholdSweep:
    """Count in one pass over the images what the mean IoU at each of 100 thresholds, 0, 0.01, ... follows from."""

    thresholds = torch.arange(100, dtype=torch.float64) / 100

    def __init__(self, classes: int) -> None:
        self.classes = classes
        # Pixels by truth, class on top, and how many thresholds lie below the highest map.
        self.counts = torch.zeros(classes + 1, classes, len(self.thresholds) + 1, dtype=torch.long)

    def update(
        self,
        maps: Float[Tensor, "batch some height width"],
        masks: UInt8[Tensor, "batch height width"],
        classes: Int[Tensor, " some"] | None = None,
    ) -> None:
        """Add images, with maps of all classes or of some; masks are 0 background, 1 + class, 255 ignored."""
        classes = torch.arange(self.classes, device=maps.device) if classes is None else classes
        if maps.shape[1] != len(classes) or masks.shape != (len(maps), *maps.shape[-2:]):
            shapes = f"maps {list(maps.shape)} and masks {list(masks.shape)}"
            raise ValueError(f"{shapes} of {len(classes)} classes do not fit")
        # Only the highest map matters: `label_map` chooses its class at every threshold that it passes.
        value, top = maps.max(1)
        counted = masks != IGNORED
        truth = masks[counted].long()
        if truth.numel() and int(truth.max()) > self.classes:
            raise ValueError(f"a mask has the value {int(truth.max())}: 0..{self.classes} and 255 (ignored) are known")
        # How many thresholds lie below the value: 0.25 passes 0, .1 and .2. An equal one is not passed, as in
        # `label_map`.
        passed = torch.bucketize(value[counted], self.thresholds.to(value))
        # The flat index of each pixel's cell of `counts`, so that one bincount adds them all.
        cell = (truth * self.classes + classes[top][counted]) * self.counts.shape[-1] + passed
        self.counts += cell.bincount(minlength=self.counts.numel()).view_as(self.counts).cpu()

    def scores(self) -> Float[Tensor, " levels"]:
        """Return the mean IoU at every threshold; nan if nothing was counted."""
        # What passes threshold t passed at least t + 1 of them; what does not is predicted as background.
        above = self.counts.flip(-1).cumsum(-1).flip(-1)[..., 1:].permute(2, 0, 1)
        below = self.counts.sum((1, 2))[:, None] - above.sum(-1, keepdim=True)
        return class_iou(torch.cat([below, above], -1)).nanmean(-1)

    def best(self) -> tuple[float, float]:
        """Return the lowest of the best thresholds, and its mean IoU; nan if every pixel is ignored."""
        scores = self.scores()
        # argmax takes the first of equal scores, which is the lowest threshold; nan must not win.
        chosen = int(scores.nan_to_num(-1).argmax())
        return float(self.thresholds[chosen]), float(scores[chosen])
