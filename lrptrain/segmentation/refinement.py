"""Pixel-adaptive refinement: maps averaged over neighbours of the same colour, again and again.

Ru, Zhan, Yu, Du 2022, "Learning Affinity from Attention: End-to-End Weakly-Supervised Semantic Segmentation with
Transformers", section 3.4.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

_AROUND = tuple((dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0))


def pixel_adaptive(
    images: Float[Tensor, "batch 3 height width"],
    maps: Float[Tensor, "batch classes height width"],
    dilations: Sequence[int] = (1, 2, 4, 8, 12, 24),
    iterations: int = 10,
    w1: float = 0.3,
    w2: float = 0.01,
) -> Float[Tensor, "batch classes height width"]:
    """Refine maps by the colours of the image.

    A pixel's neighbours are the eight around it at every dilation; beyond the border the nearest pixel counts. The
    weight of neighbour j of pixel i is softmax_j(-mean_c(|I_i - I_j| / (w1 sigma_c))^2) + w2 softmax_j(-(d_ij / (w1
    sigma_d))^2), with the standard deviation of the neighbours' colours (per channel c) and of their distances. The
    published weights sum to 1 + w2; here they are divided by that, so that values stay in 0..1.

    Images and maps are in 0..1, `dilations` in pixels; the maps are averaged `iterations` times.
    """
    if images.shape[-2:] != maps.shape[-2:] or len(images) != len(maps):
        raise ValueError(f"images {list(images.shape)} and maps {list(maps.shape)} differ in number or size")
    if not dilations or min(dilations) < 1 or iterations < 0 or w1 <= 0 or w2 < 0:
        raise ValueError(
            "pixel_adaptive needs dilations of at least 1, iterations and w2 of at least 0, and w1 above 0"
        )
    # The weights depend on the image alone: they are computed once for all iterations and classes.
    weights = _affinities(images.to(maps.dtype), dilations, w1, w2)
    for _ in range(iterations):
        # Neighbour by neighbour: all shifted copies at once would take 48 times the memory of the maps (8 x 6
        # dilations).
        average = torch.zeros_like(maps)
        for near, weight in zip(_shifted(maps, dilations), weights, strict=True):
            average.addcmul_(near, weight[:, None])
        maps = average
    return maps


def _affinities(
    images: Float[Tensor, "batch 3 height width"], dilations: Sequence[int], w1: float, w2: float
) -> Float[Tensor, "neighbours batch height width"]:
    """Return the weight of every neighbour of every pixel; those of a pixel sum to 1."""
    count = 8 * len(dilations)
    mean = sum(near / count for near in _shifted(images, dilations))
    squares = sum((near - mean).square() for near in _shifted(images, dilations))
    # The standard deviation of a pixel's neighbours per channel, [batch, 3, height, width]; never 0.
    spread = (torch.as_tensor(squares) / (count - 1)).sqrt() + 1e-8
    # [neighbours, batch, height, width]; the softmax makes the weights of a pixel's neighbours sum to 1.
    colour = torch.stack(
        [-((near - images) / (w1 * spread)).square().mean(1) for near in _shifted(images, dilations)]
    ).softmax(0)
    # The same for all pixels: the diagonal neighbours at dilation 2 are 2 * sqrt(2) pixels away.
    distance = torch.tensor(
        [dilation * (dy**2 + dx**2) ** 0.5 for dilation in dilations for dy, dx in _AROUND], dtype=torch.float64
    )
    nearness = (-(distance / (w1 * distance.std())).square()).softmax(0).to(colour)
    return (colour + w2 * nearness[:, None, None, None]) / (1 + w2)


def _shifted(x: Tensor, dilations: Sequence[int]) -> Iterator[Tensor]:
    """Yield for every neighbour its value at each pixel, `[batch, channels, height, width]`; a view, not a copy."""
    height, width = x.shape[-2:]
    most = max(dilations)
    # Padded by the largest dilation, so that every shift is a slice of the same size.
    padded = F.pad(x, (most,) * 4, mode="replicate")
    for dilation in dilations:
        for dy, dx in _AROUND:
            top, left = most + dy * dilation, most + dx * dilation
            yield padded[..., top : top + height, left : left + width]
