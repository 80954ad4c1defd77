"""Are annotations of 0 and 255 meant as PNG files hold them, where 255 is the evidence? Told from the first batches."""

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED, mixes_0_and_255, no_evidence

_PIXELS_PER_RADIUS = 100


class PngMasks:
    """Collects what batches hold until a 1 among their annotations shows that they are read as they are meant.

    Samples in which nothing is evidence may hold 255, too: at borders that a crop or a letterbox left, as outlines of
    objects (PASCAL VOC), in regions that nobody judged. Only what is surely of the other kind is a problem: every
    annotated mask so far has 0 and 255, no value is 1, and in more than half of these masks 255 fills solid regions
    beside 0. All else is told by the annotations of a whole sample (`lrptrain.monitor.annotated`).
    """

    def __init__(self) -> None:
        self._has_evidence = False
        self._annotated = 0
        self._mixed = 0
        self._solid = 0
        self._rationale = False

    def add(self, batch: Mapping[str, Any]) -> None:
        """Look at the mask or the rationale of a batch in the contract's form, of any dtype; others are passed over."""
        for name in ("mask", "rationale"):
            values = batch.get(name)
            if self._has_evidence or not isinstance(values, Tensor):
                continue
            self._has_evidence = bool((values == 1).any())
            if name == "rationale":
                self._rationale |= mixes_0_and_255(batch, name)
            elif values.ndim in (3, 4):
                self._add_planes(values.reshape(-1, *values.shape[-2:]))

    def _add_planes(self, planes: Shaped[Tensor, "planes height width"]) -> None:
        ignored = planes == IGNORED
        annotated = ~ignored.flatten(1).all(1)
        mixed = annotated & ignored.flatten(1).any(1)
        self._annotated += int(annotated.sum())
        self._mixed += int(mixed.sum())
        self._solid += int((mixed & _has_solid_regions(ignored, planes == 0)).sum())

    @property
    def problem(self) -> str:
        """What is wrong with the annotations so far, and the remedy; "" if nothing surely is."""
        surely = self._annotated > 0 and self._mixed == self._annotated and 2 * self._solid > self._annotated
        if self._has_evidence or not (surely or self._rationale):
            return ""
        return (
            f"{no_evidence('mask' if surely else 'rationale')}. If 255 is meant as ignored, let an annotation with a 1 "
            "come first: shuffle the samples; for the monitor, num_sanity_val_steps=0 leaves it to the whole sample"
        )


def _has_solid_regions(
    ignored: Bool[Tensor, "planes height width"], zero: Bool[Tensor, "planes height width"]
) -> Bool[Tensor, " planes"]:
    """Return where 255 beside 0 fills regions: neither rows and columns at the border alone, nor outlines alone.

    e.g. with . for 0 and # for 255
        a frame         an outline       an object
        # # # # #       . . . . .        . . . . .
        # . . . #       . # # # .        . # # # .
        # . . . #       . # . # .        . # # # .
        # # # # #       . # # # .        . # # # .
    """
    # What lies within the first and the last row, and column, that has a 0.
    rows, columns = (_between_ends(zero.any(axis)) for axis in (2, 1))
    inside = ignored & rows[:, :, None] & columns[:, None, :]
    # Opened: shrunk by a radius, 2 pixels of 224, and grown again. Objects remain, and of thinner outlines nothing.
    radius = max(1, min(inside.shape[1:]) // _PIXELS_PER_RADIUS)
    shrunk = 1 - _grown((~inside).float(), radius)
    opened = _grown(shrunk, radius).flatten(1).sum(1)
    return (opened > 0) & (2 * opened >= inside.flatten(1).sum(1))


def _grown(values: Float[Tensor, "planes height width"], radius: int) -> Float[Tensor, "planes height width"]:
    """Return the largest value of each pixel's square; beyond the border there is none."""
    return F.max_pool2d(values[:, None], 2 * radius + 1, stride=1, padding=radius)[:, 0]


def _between_ends(present: Bool[Tensor, "planes length"]) -> Bool[Tensor, "planes length"]:
    """Return what lies between the first and the last True of each row, with both."""
    after_first = present.long().cumsum(1) > 0
    before_last = present.flip(1).long().cumsum(1).flip(1) > 0
    return after_first & before_last
