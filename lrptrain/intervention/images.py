"""Regions of images: painted over, shifted, dilated."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Images = Float[Tensor, "batch channels height width"]
Pixels = Bool[Tensor, "batch height width"]


def filled(images: Images, region: Pixels, colour: Float[Tensor, " channels"]) -> Images:
    """Return the images with the region in one colour."""
    return torch.where(region[:, None], colour.to(images)[:, None, None], images)


def inpainted(images: Images, region: Pixels) -> Images:
    """Return the images with the region continued smoothly from what surrounds it.

    Push-pull filling (Gortler et al. 1996, "The Lumigraph", section 3.4): averages of the known pixels at ever coarser
    scales fill what is unknown at the finer ones. Where nothing is known the image stays as it is.
    """
    intact = (~region[:, None]).to(images.dtype)
    smooth = _push_pull(images * intact, intact)
    fillable = region[:, None] & intact.flatten(1).any(1)[:, None, None, None]
    return torch.where(fillable, smooth, images)


def _push_pull(weighted: Images, weights: Images) -> Images:
    """Return every pixel's value, the unknown ones from the next coarser scale; `weighted` is value times weight."""
    # The pull: halve the size until every pixel is known; the push: on the way back, fill what is unknown from there.
    # weights [batch, 1, height, width] are 1 at known pixels and 0 at others; `weighted` is 0 at the latter.
    # So they are the known values themselves.
    if min(weights.shape[-2:]) == 1 or bool((weights > 0).all()):
        return weighted
    coarse = [F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False) for x in (weighted, weights)]
    full = (coarse[1] > 0).to(weights.dtype)  # a coarse pixel is known if any part of it is
    # Coarse weights are 0, or at least a quarter. The least normal number: a fixed one may be 0 in 16 bits, and 0 / 0
    # spreads.
    least = torch.finfo(weights.dtype).tiny
    filling = _push_pull(coarse[0] / coarse[1].clamp(min=least) * full, full)
    filling = F.interpolate(filling, weights.shape[-2:], mode="bilinear", align_corners=False)
    return torch.where(weights > 0, weighted, filling)


def shifted(region: Pixels, offset: Int[Tensor, "batch 2"]) -> Pixels:
    """Return the same shape elsewhere: moved down and to the right by `offset` pixels, around the edges."""
    count, height, width = region.shape
    # The pixel (y, x) of the result is the one that lay at (y - dy, x - dx) before, around the edges.
    rows = (torch.arange(height, device=region.device) - offset[:, :1]) % height
    columns = (torch.arange(width, device=region.device) - offset[:, 1:]) % width
    sample = torch.arange(count, device=region.device)
    # [batch, 1, 1], [batch, height, 1] and [batch, 1, width]: one index per pixel, and another offset for every sample.
    return region[sample[:, None, None], rows[:, :, None], columns[:, None, :]]


def dilate(region: Pixels, margin: int) -> Pixels:
    """Return the region and all pixels within `margin` pixels of it, diagonals included."""
    # A square holds a pixel of the region if a row of it does: over columns first, then over rows.
    for axis in (1, 2):
        region = _any_within(region, margin, axis)
    return region


def _any_within(region: Pixels, margin: int, axis: int) -> Pixels:
    """Return which pixels have one of the region within `margin` along an axis."""
    side = 2 * margin + 1
    around = [margin, margin] if axis == 2 else [0, 0, margin, margin]
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
