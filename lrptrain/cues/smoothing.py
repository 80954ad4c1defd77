"""Smoothing along a side of an image."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def gaussian(length: int, deviation: float) -> Float[Tensor, "length length"]:
    """Return how much each place along a side gives to each other one: two products are faster than wide kernels.

    Args:
        length: The pixels of the side; beyond it, values are 0.
        deviation: The standard deviation, in pixels.
    """
    places = torch.arange(length, dtype=torch.float64)
    weights = torch.exp(-0.5 * ((places[:, None] - places) / deviation) ** 2)
    return weights / (deviation * math.sqrt(2 * math.pi))
