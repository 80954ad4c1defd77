"""Maps spread over patches that attend to each other: a random walk on the attention of the classifier itself.

The walk is that of Ahn & Kwak 2018, "Learning pixel-level semantic affinity"; the affinity is the attention, as in
Xu et al. 2022, "Multi-class Token Transformer for Weakly Supervised Semantic Segmentation" (MCTformer).
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance import record
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.types import UnsupportedModelError
from lrptrain.segmentation.seeds import unit
from lrptrain.segmentation.sizes import any_size

Refinement = Callable[[Tensor, Tensor], Tensor]


def attention_affinity(
    model: nn.Module,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    blocks: int | None = 3,
    power: float = 2.0,
    steps: int = 1,
) -> Refinement:
    """Return a function that refines maps by the attention of a ViT.

    The affinity of two patches is the mean of their attention over heads and blocks, to a power, scaled so that no
    patch draws more attention than another, and the same both ways; its rows, scaled to sum 1, are the walk's. A map is
    averaged over its patches, walks, is brought back bilinearly, and is scaled to 0..1 by its own minimum and maximum:
    a walk lifts all of it.

    Args:
        model: The classifier, in evaluation mode.
        mean: The mean of each channel, which is subtracted from images in 0..1 before the model sees them.
        std: The standard deviation of each channel, by which the difference is divided.
        blocks: The number of blocks whose attention is averaged, the last ones; None for all.
        power: The exponent of the attention; above 1 the walk keeps to strong ties.
        steps: The number of steps of the walk.

    Returns:
        `refine(images, maps)`: images `[batch, 3, height, width]` in 0..1, maps `[batch, classes, height, width]`.

    Raises:
        ValueError: If an argument is out of range.
        UnsupportedModelError: Raised by the returned function if the model's attention is not one over patches.
    """
    if (blocks is not None and blocks < 1) or power <= 0 or steps < 0:
        raise ValueError("attention_affinity needs at least one block, a power above 0 and steps of at least 0")

    def refine(
        images: Float[Tensor, "batch 3 height width"], maps: Float[Tensor, "batch classes height width"]
    ) -> Float[Tensor, "batch classes height width"]:
        offset, scale = (images.new_tensor(values).view(3, 1, 1) for values in (mean, std))
        affinity, grid = attention_between_patches(model, (images - offset) / scale, blocks)
        with torch.no_grad():
            # No step at all is the identity: the maps are then only averaged over patches.
            walk = torch.linalg.matrix_power(transitions(affinity, power), steps)
            # [batch, classes, patches]
            patches = F.adaptive_avg_pool2d(maps, grid).flatten(2)
            # A patch's new value is the mean of the old ones, weighted by its row of the walk.
            walked = torch.einsum("bij,bcj->bci", walk.to(patches), patches).unflatten(2, grid)
            refined = F.interpolate(walked, maps.shape[-2:], mode="bilinear", align_corners=False)
            return unit(refined - refined.amin((2, 3), keepdim=True))

    return refine


def transitions(
    affinity: Float[Tensor, "batch patches patches"], power: float
) -> Float[Tensor, "batch patches patches"]:
    """Return the walk's probabilities from each patch (row) to each patch (column); rows sum to 1."""
    sharp = affinity.pow(power)
    # Columns before rows: a patch that all others attend to must not collect the whole map.
    sharp = sharp / sharp.sum(-2, keepdim=True)
    sharp = sharp / sharp.sum(-1, keepdim=True)
    # Attention has a direction, affinity has none; the sum's rows are scaled to 1 again to be probabilities.
    both = sharp + sharp.mT
    return both / both.sum(-1, keepdim=True)


def attention_between_patches(
    model: nn.Module, images: Float[Tensor, "batch 3 height width"], blocks: int | None = None
) -> tuple[Float[Tensor, "batch patches patches"], tuple[int, int]]:
    """Return the attention between patches, averaged over the heads of the last blocks, and the grid of the patches.

    Raises:
        UnsupportedModelError: If the model reads no grid of patches.
    """
    with any_size(model):
        recording = record(model, images)
    layout = recording.layout
    attention = recording.attention
    if layout.grid is None:
        raise UnsupportedModelError("attention_affinity needs a model of images, whose patches form a grid")
    positions = list(layout.positions)
    with torch.no_grad():
        used = attention if blocks is None else attention[-blocks:]
        # [batch, heads, length, length] -> mean over heads -> the rows and columns of patches, without special tokens.
        total = sum(at_least_float32(block.detach()).mean(1)[:, positions][:, :, positions] for block in used)
        return torch.as_tensor(total) / len(used), recording.patch_grid
