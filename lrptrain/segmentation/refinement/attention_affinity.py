"""Maps spread over patches that attend to each other: a random walk on the attention of the classifier itself.

The walk is that of Ahn & Kwak 2018, "Learning pixel-level semantic affinity"; the affinity is the attention, as in
Xu et al. 2022, "Multi-class Token Transformer for Weakly Supervised Semantic Segmentation" (MCTformer).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance import record
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.types import UnsupportedModelError
from lrptrain.segmentation.seeds import unit
from lrptrain.segmentation.sizes import any_size


def attention_affinity(
    images: Float[Tensor, "batch 3 height width"],
    maps: Float[Tensor, "batch classes height width"],
    model: nn.Module,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    blocks: int | None = 3,
    power: float = 2.0,
    steps: int = 1,
) -> Float[Tensor, "batch classes height width"]:
    """Refine maps by the attention of a ViT.

    The affinity of two patches is the mean of their attention over heads and blocks, to a power, scaled so that no
    patch draws more attention than another, and the same both ways; its rows, scaled to sum 1, are the walk's. A map is
    averaged over its patches, walks, is brought back bilinearly, and is scaled to 0..1 by its own minimum and maximum:
    a walk lifts all of it.

    Args:
        images: RGB images in 0..1.
        maps: Maps in 0..1.
        model: The classifier, in evaluation mode.
        mean: The mean of each channel, which is subtracted from images before the model sees them.
        std: The standard deviation of each channel, by which the difference is divided.
        blocks: The number of blocks whose attention is averaged, the last ones; None for all.
        power: The exponent of the attention; above 1 the walk keeps to strong ties.
        steps: The number of steps of the walk.

    Raises:
        ValueError: If an argument is out of range.
        UnsupportedModelError: If the model's attention is not one over patches.
    """
    if (blocks is not None and blocks < 1) or power <= 0 or steps < 0:
        raise ValueError("attention_affinity needs at least one block, a power above 0 and steps of at least 0")
    offset, scale = (images.new_tensor(values).view(3, 1, 1) for values in (mean, std))
    with any_size(model):
        recording = record(model, (images - offset) / scale)
    if recording.layout.grid is None:
        raise UnsupportedModelError("attention_affinity needs a model of images, whose patches form a grid")
    grid, positions = recording.patch_grid, list(recording.layout.positions)
    with torch.no_grad():
        # [batch, heads, length, length] -> mean over heads -> the rows and columns of patches, without special tokens.
        used = recording.attention[-(blocks or 0) :]
        total = sum(at_least_float32(block.detach()).mean(1)[:, positions][:, :, positions] for block in used)
        # No step at all is the identity: the maps are then only averaged over patches.
        walk = torch.linalg.matrix_power(_transitions(torch.as_tensor(total) / len(used), power), steps)
        # [batch, classes, patches]: a patch's new value is the mean of the old ones, weighted by its row of the walk.
        patches = F.adaptive_avg_pool2d(maps, grid).flatten(2)
        walked = torch.einsum("bij,bcj->bci", walk.to(patches), patches).unflatten(2, grid)
        refined = F.interpolate(walked, maps.shape[-2:], mode="bilinear", align_corners=False)
        return unit(refined - refined.amin((2, 3), keepdim=True))


def _transitions(
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
