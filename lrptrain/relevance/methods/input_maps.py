"""From relevance of the input's numbers to relevance per pixel and per token."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.recording import Recording
from lrptrain.relevance.registry import RelevanceMaps


def input_maps(recording: Recording, relevance: Float[Tensor, "batch ..."]) -> RelevanceMaps:
    """Sum an image over its channels and each patch, a text over the width of its embeddings."""
    if relevance.ndim == 3:
        return RelevanceMaps(relevance.sum(-1), relevance)
    pixels = relevance.sum(1)
    return RelevanceMaps(_sum_per_patch(pixels, recording.patch_grid), pixels)


def _sum_per_patch(pixels: Float[Tensor, "batch height width"], grid: tuple[int, int]) -> Float[Tensor, "batch tokens"]:
    area = pixels.shape[-2] * pixels.shape[-1] / (grid[0] * grid[1])
    return (F.adaptive_avg_pool2d(pixels, grid) * area).flatten(1)
