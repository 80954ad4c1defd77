"""Framing: how near a camera was, and how far it was turned.

Both are read from the gradient of the brightness. Its mean length, over the mean deviation of the brightness, is halved
where things are twice as large, be they smooth or sharp. Most edges of most pictures run along two directions at right
angles (Switkes et al. 1978, "Spatial frequency analysis of the visual environment"): the fourth circular moment of the
gradient's direction tells how far these are turned, up to a quarter turn.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.cues.look import Images, Look, Pixels, gaussian
from lrptrain.cues.visual.base import register_look

DETAIL = 1 / 48
"""The standard deviation at which gradients are taken, in shares of the shorter side: what is finer is mostly noise.

A choice that no experiment has measured: in images of fewer than 48 pixels a side it is one pixel, whatever is here."""


class Frame(NamedTuple):
    """How an image is framed.

    Attributes:
        size: How large details are: the logarithm of their length in pixels, up to a constant.
        angle: How far edges are turned, in radians, from -pi / 4 to pi / 4.
        is_plain: Whether an image is of one brightness, and so has no framing.
    """

    size: Float[Tensor, " batch"]
    angle: Float[Tensor, " batch"]
    is_plain: Bool[Tensor, " batch"]


@register_look
@dataclass(frozen=True)
class Framing(Look):
    """Scale and rotation of images: an image is magnified and turned around its middle until it has its source's."""

    kind: ClassVar[str] = "framing"
    word: ClassVar[str] = "scale and rotation"
    order: ClassVar[int] = 50
    keeps_places: ClassVar[bool] = False

    def transplant(self, images: Images, own: Pixels, sources: Images, theirs: Pixels) -> Images:
        """See `Look`; beyond its edges an image is mirrored."""
        ours, others = _frame(images, own), _frame(sources, theirs)
        is_plain = ours.is_plain | others.is_plain
        zoom = (others.size - ours.size).exp().where(~is_plain, 1)
        turn = torch.remainder(others.angle - ours.angle + math.pi / 4, math.pi / 2) - math.pi / 4
        turn = turn.where(~is_plain, 0)
        height, width = images.shape[2:]
        cosine, sine = turn.cos() / zoom, turn.sin() / zoom
        zero = torch.zeros_like(zoom)
        # Where each pixel comes from; coordinates run from -1 to 1 along either side, whatever its length.
        rows = [(cosine, sine * height / width, zero), (-sine * width / height, cosine, zero)]
        matrix = torch.stack([torch.stack(row, 1) for row in rows], 1).to(images.dtype)
        grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _frame(images: Images, inside: Pixels) -> Frame:
    height, width = images.shape[2:]
    deviation = max(1.0, DETAIL * min(height, width))
    grey = images.double().mean(1)
    down, across = (gaussian(length, deviation).to(grey) for length in (height, width))
    smooth = (down / down.sum(1, keepdim=True)) @ grey @ (across / across.sum(0))
    # What a circle holds: corners would tell how a frame lies, and a turned image has other ones.
    weights = (inside & _circle(height, width).to(inside.device)).double()
    total = weights.sum((1, 2)).clamp(min=1)
    by_row, by_column = torch.gradient(smooth, dim=(1, 2))
    gradient = torch.complex(by_column, by_row) * weights
    mean = (smooth * weights).sum((1, 2)) / total
    spread = ((smooth - mean[:, None, None]).abs() * weights).sum((1, 2))
    steep = gradient.abs().sum((1, 2))
    # e.g. the rounding of a plain image
    is_plain = steep <= torch.finfo(torch.float32).eps * (grey.abs() * weights).sum((1, 2))
    angle = (gradient.abs().square() * torch.polar(weights, 4 * gradient.angle())).sum((1, 2)).angle() / 4
    return Frame((spread / steep.where(~is_plain, 1)).log(), angle, is_plain)


def _circle(height: int, width: int) -> Tensor:
    down, across = (torch.arange(length) - (length - 1) / 2 for length in (height, width))
    return torch.hypot(down[:, None], across) < min(height, width) / 2
