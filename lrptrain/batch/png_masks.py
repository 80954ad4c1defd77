"""Are annotations of 0 and 255 meant as PNG files hold them, where 255 is the evidence? Told from the first batches."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED, mixes_0_and_255, no_evidence

_PIXELS_PER_RADIUS = 100
_NARROW = 8  # the part of the side that a border of padding may take on one side alone


class PngMasks:
    """Collects what batches hold until a 1 among their annotations shows that they are read as they are meant.

    Samples in which nothing is evidence may hold 255, too: at borders that a crop or a letterbox left, as outlines of
    objects (PASCAL VOC). A problem is where no value so far is 1, and in more than half of the masks with 0 and 255 it
    is 255 that fills solid regions. All else is told from the annotations of a whole sample
    (`lrptrain.monitor.annotated`).
    """

    def __init__(self) -> None:
        self._has_evidence = False
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
        self._mixed += int(mixed.sum())
        self._solid += int((mixed & _has_solid_regions(ignored, planes == 0)).sum())

    @property
    def problem(self) -> str:
        """What is wrong with the annotations so far, and the remedy; "" if nothing is known to be."""
        known = 2 * self._solid > self._mixed
        if self._has_evidence or not (known or self._rationale):
            return ""
        return (
            f"{no_evidence('mask' if known else 'rationale')}. If 255 is meant as ignored, let an annotation with a 1 "
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
    rows = _within_border(zero.any(2))
    columns = _within_border(zero.any(1))
    inside = ignored & rows[:, :, None] & columns[:, None, :]
    # Opened: shrunk by a radius, 2 pixels of 224, and grown again. Objects remain, and of thinner outlines nothing.
    radius = max(1, min(inside.shape[1:]) // _PIXELS_PER_RADIUS)
    shrunk = 1 - _grown((~inside).float(), radius)
    opened = _grown(shrunk, radius).flatten(1).sum(1)
    return (opened > 0) & (2 * opened >= inside.flatten(1).sum(1))


def _grown(values: Float[Tensor, "planes height width"], radius: int) -> Float[Tensor, "planes height width"]:
    """Return the largest value of each pixel's square; beyond the border there is none."""
    return F.max_pool2d(values[:, None], 2 * radius + 1, stride=1, padding=radius)[:, 0]


def _within_border(present: Bool[Tensor, "planes length"]) -> Bool[Tensor, "planes length"]:
    """Return which rows, or columns, lie within a border of padding: narrow, or the same on both sides."""
    length = present.shape[1]
    before = (present.long().cumsum(1) == 0).sum(1)
    behind = (present.flip(1).long().cumsum(1) == 0).sum(1)
    padded = (before.maximum(behind) <= length // _NARROW) | ((before - behind).abs() <= 1)
    place = torch.arange(length, device=present.device)
    within = (place >= before[:, None]) & (place < length - behind[:, None])
    return within | ~padded[:, None]
