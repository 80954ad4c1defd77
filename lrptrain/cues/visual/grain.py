"""Grain: what an image has pixel by pixel, all over or along whole lines: noise, blocks of a compression, a mosaic, a
row or a column of a sensor.

The spectrum says how strong such a pattern is. Where it lies is in the phases, which a spectrum leaves.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.cues.look import Images, Look, Pixels, mean_of, smoothed
from lrptrain.cues.visual.base import register_look

SMOOTHING = 1.0
"""The standard deviation, in pixels, of the low-pass whose rest is grain: no more than neighbours differ by. Doubled,
the cause is first in 1 instead of 4 of 5 models; halved, in 3 (`python -m experiments.benchmark.moved`)."""
ALL_OVER = 2.0
"""What exceeds so many standard deviations of that rest, as 5 % of normal numbers do, is the edge of a thing. Halved,
the cause is first in 3 instead of 4 of 5 models; doubled, in as many, and 4 instead of 3 cues are named in models
without one (`python -m experiments.benchmark.moved`)."""


@register_look
@dataclass(frozen=True)
class Grain(Look):
    """The highest frequencies of images, with their phases."""

    kind: ClassVar[str] = "grain"
    word: ClassVar[str] = "grain"
    order: ClassVar[int] = 40

    def transplant(self, images: Images, own: Pixels, sources: Images, theirs: Pixels) -> Images:
        """See `Look`."""
        return images + _grain(sources, theirs) - _grain(images, own)


def _grain(images: Images, inside: Pixels) -> Images:
    rest = (images - smoothed(images, inside, SMOOTHING)) * inside[:, None]
    lines = _along(rest, inside, 2)
    lines = (lines + _along(rest - lines, inside, 3)) * inside[:, None]
    limit = ALL_OVER * mean_of((rest - lines).square(), inside).clamp(min=torch.finfo(images.dtype).tiny).sqrt()
    return lines + torch.maximum(torch.minimum(rest - lines, limit), -limit)


def _along(values: Images, inside: Pixels, axis: int) -> Float[Tensor, "batch channels *lines"]:
    """Return what most pixels of every line have: what crosses less than half of one is a thing."""
    there = values.masked_fill(~inside[:, None], torch.nan)
    return there.nanmedian(axis, keepdim=True).values.nan_to_num()
