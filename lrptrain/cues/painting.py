"""Regions of images, volumes and series: painted over, and made larger."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

Images = Float[Tensor, "batch channels *places"]
Pixels = Bool[Tensor, " batch *places"]
_POOLS = {3: F.avg_pool1d, 4: F.avg_pool2d, 5: F.avg_pool3d}
_MODES = {3: "linear", 4: "bilinear", 5: "trilinear"}


def inpainted(images: Images, region: Pixels) -> Images:
    """Return the images with the region continued smoothly from what surrounds it.

    Push-pull filling (Gortler et al. 1996, "The Lumigraph", section 3.4): averages of the known pixels at ever coarser
    scales fill what is unknown at the finer ones. Where nothing is known the image stays as it is.
    """
    intact = (~region[:, None]).to(images.dtype)
    smooth = _push_pull(images * intact, intact)
    fillable = region[:, None] & intact.flatten(1).any(1).view(-1, *[1] * (images.ndim - 1))
    return torch.where(fillable, smooth, images)


def _push_pull(weighted: Images, weights: Images) -> Images:
    """Return every pixel's value, the unknown ones from the next coarser scale; `weighted` is value times weight."""
    # The pull: halve the size until every pixel is known; the push: on the way back, fill what is unknown from there.
    # weights [batch, 1, *places] are 1 at known pixels and 0 at others; `weighted` is 0 at the latter.
    # So they are the known values themselves.
    sizes = weights.shape[2:]
    if max(sizes) == 1 or bool((weights > 0).all()):
        return weighted
    pool, sides = _POOLS[weights.ndim], [min(size, 2) for size in sizes]
    coarse = [pool(x, sides, ceil_mode=True, count_include_pad=False) for x in (weighted, weights)]
    full = (coarse[1] > 0).to(weights.dtype)  # a coarse pixel is known if any part of it is
    # Coarse weights are 0, or at least a quarter. The least normal number: a fixed one may be 0 in 16 bits, and 0 / 0
    # spreads.
    least = torch.finfo(weights.dtype).tiny
    filling = _push_pull(coarse[0] / coarse[1].clamp(min=least) * full, full)
    filling = F.interpolate(filling, sizes, mode=_MODES[weights.ndim], align_corners=False)
    return torch.where(weights > 0, weighted, filling)


def dilate(region: Pixels, margin: int) -> Pixels:
    """Return the region and all pixels within `margin` pixels of it, diagonals included."""
    # A square holds a pixel of the region if a row of it does: over columns first, then over rows.
    for axis in range(1, region.ndim):
        region = _any_within(region, margin, axis)
    return region


def _any_within(region: Pixels, margin: int, axis: int) -> Pixels:
    """Return which pixels have one of the region within `margin` along an axis."""
    side = 2 * margin + 1
    around = [*[0, 0] * (region.ndim - 1 - axis), margin, margin]
    near = F.pad(region, around)
    # Windows of 1, 2, 4 ... pixels, and at last of `side`: a window is the union of two that together cover it. Of
    # booleans this is some twenty times as fast as a maximum over squares.
    length = 1
    while length < side:
        step = min(length, side - length)
        size = near.shape[axis] - step
        near = near.narrow(axis, 0, size) | near.narrow(axis, step, size)
        length += step
    return near
