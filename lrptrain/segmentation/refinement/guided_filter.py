"""The guided filter: each map as a locally linear function of the image's colours (He, Sun, Tang 2010)."""

from jaxtyping import Float
from torch import Tensor

from lrptrain.extras import require


def guided_filter(
    images: Float[Tensor, "batch 3 height width"],
    maps: Float[Tensor, "batch classes height width"],
    radius: float = 1 / 28,
    epsilon: float = 1e-3,
) -> Float[Tensor, "batch classes height width"]:
    """Refine maps by the edges of the image, with kornia's `guided_blur`.

    Args:
        images: RGB images in 0..1.
        maps: Maps in 0..1.
        radius: The radius of the window as a share of the image's longer side: 8 pixels of 224.
        epsilon: The variance of colour below which an edge is smoothed away.

    Returns:
        Maps in 0..1.
    """
    filters = require("kornia.filters", "refinement")
    # kornia takes the window's side in pixels, which must be odd.
    reach = max(round(radius * max(images.shape[-2:])), 1)
    return filters.guided_blur(images.to(maps.dtype), maps, 2 * reach + 1, epsilon).clamp(0, 1)
