"""Smoothing of images."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def smoothed(
    images: Float[Tensor, "batch channels height width"],
    inside: Bool[Tensor, "batch height width"],
    deviation: float,
) -> Float[Tensor, "batch channels height width"]:
    """Return the low frequencies of a part of images; what lies outside counts for nothing, and spreads nothing."""
    down, across = (gaussian(length, deviation).to(images) for length in images.shape[2:])
    weights = inside[:, None].to(images.dtype)
    known = down @ weights @ across
    return down @ (images * weights) @ across / known.clamp(min=torch.finfo(images.dtype).eps)


def gaussian(length: int, deviation: float) -> Float[Tensor, "length length"]:
    """Return how much each place along a side gives to each other one: two products are faster than wide kernels."""
    places = torch.arange(length, dtype=torch.float64)
    weights = torch.exp(-0.5 * ((places[:, None] - places) / deviation) ** 2)
    return weights / (deviation * math.sqrt(2 * math.pi))
