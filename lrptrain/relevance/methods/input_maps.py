"""From relevance of the input's numbers to relevance per pixel and per token."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.recording import Recording
from lrptrain.relevance.registry import Maps
from lrptrain.relevance.types import UnsupportedModelError


def input_maps(recording: Recording, relevance: Float[Tensor, "batch ..."]) -> Maps:
    """Sum an image over its channels and each patch, a text over the width of its embeddings."""
    if relevance.ndim == 3:
        return Maps(relevance.sum(-1), relevance)
    pixels = relevance.sum(1)
    return Maps(_sum_per_patch(pixels, patch_grid(recording)), pixels)


def patch_grid(recording: Recording) -> tuple[int, int]:
    """Rows and columns of the patches.

    Raises:
        UnsupportedModelError: If the image is not cut by a convolution and no layout was given.
    """
    if recording.given_layout is not None and recording.given_layout.grid is not None:
        return recording.given_layout.grid
    node = recording.walk.patch_embedding
    if node is None:
        raise UnsupportedModelError("no patch convolution was found; pass layout=TokenLayout(length, positions, grid)")
    rows, columns = node.outputs[0].shape[-2:]
    return rows, columns


def _sum_per_patch(pixels: Float[Tensor, "batch height width"], grid: tuple[int, int]) -> Float[Tensor, "batch tokens"]:
    area = pixels.shape[-2] * pixels.shape[-1] / (grid[0] * grid[1])
    return (F.adaptive_avg_pool2d(pixels, grid) * area).flatten(1)
