"""Colour: mean and covariance of the channels, with which hues, brightness and contrast go along.

The transplant is the optimal transport between normal distributions (Pitie & Kokaram 2007, "The linear
Monge-Kantorovitch linear colour mapping for example-based colour transfer", equation 4): a linear map of the colours,
so that nobody has to know how pixels were normalised.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.cues.look import Images, Look, Pixels, mean_of
from lrptrain.cues.visual.base import register_look

_RANK = 1e-6
"""Directions of colour with less of the largest variance have none: a grey image in three channels has one. What is
less is rounding, so that half or twice as much changes nothing."""


@register_look
@dataclass(frozen=True)
class Colour(Look):
    """The colours of images."""

    kind: ClassVar[str] = "colour"
    word: ClassVar[str] = "colours"
    order: ClassVar[int] = 10
    is_of_evidence: ClassVar[bool] = True

    def transplant(self, images: Images, own: Pixels, sources: Images, theirs: Pixels) -> Images:
        """See `Look`."""
        mean, covariance = _moments(images, own)
        their_mean, their_covariance = _moments(sources, theirs)
        root = _power(covariance, 0.5)
        back = _power(covariance, -0.5)
        monge = back @ _power(root @ their_covariance @ root, 0.5) @ back
        moved = monge @ (images.double() - mean).flatten(2) + their_mean.flatten(2)
        return moved.to(images.dtype).view_as(images)


def _moments(
    images: Images, inside: Pixels
) -> tuple[Float[Tensor, "batch channels 1 1"], Float[Tensor, "batch channels channels"]]:
    images = images.double()
    mean = mean_of(images, inside)
    weights = inside.flatten(1)[:, None].double()
    centred = (images - mean).flatten(2) * weights
    return mean, centred @ centred.mT / weights.sum(-1, keepdim=True).clamp(min=1)


def _power(matrix: Float[Tensor, "batch n n"], power: float) -> Float[Tensor, "batch n n"]:
    values, vectors = torch.linalg.eigh(matrix)
    least = _RANK * values.amax(-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    powers = torch.where(values > least, values.clamp(min=least) ** power, 0.0)
    return vectors @ (powers[..., None] * vectors.mT)
