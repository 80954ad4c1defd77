"""Regions of images removed, or swapped with those of other images."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Images = Float[Tensor, "batch channels height width"]
Pixels = Bool[Tensor, "batch height width"]


def filled(images: Images, region: Pixels, colour: Float[Tensor, " channels"]) -> Images:
    """The region in one colour."""
    return torch.where(region[:, None], colour.to(images)[:, None, None], images)


def inpainted(images: Images, region: Pixels) -> Images:
    """The region continued smoothly from what surrounds it.

    Push-pull filling (Gortler et al. 1996, "The Lumigraph", section 3.4): averages of the known pixels at ever coarser
    scales fill what is unknown at the finer ones. Where nothing is known the image stays as it is.
    """
    known = (~region[:, None]).to(images.dtype)
    smooth = _pulled(images * known, known)
    unknown = region[:, None] & known.flatten(1).any(1)[:, None, None, None]
    return torch.where(unknown, smooth, images)


def _pulled(weighted: Images, weights: Images) -> Images:
    """Every pixel's value, the unknown ones from the next coarser scale; `weighted` is value times weight."""
    own = weighted / weights.clamp(min=1e-12)
    if min(weights.shape[-2:]) == 1 or bool((weights > 0).all()):
        return own
    coarse = [F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False) for x in (weighted, weights)]
    full = (coarse[1] > 0).to(weights.dtype)  # a coarse pixel is known if any part of it is
    filling = _pulled(coarse[0] / coarse[1].clamp(min=1e-12) * full, full)
    filling = F.interpolate(filling, weights.shape[-2:], mode="bilinear", align_corners=False)
    return torch.where(weights > 0, own, filling)


def swapped(images: Images, region: Pixels, lenders: Images) -> Images:
    """The region as it is in other images of the same size."""
    return torch.where(region[:, None], lenders, images)


def rolled(region: Pixels, offset: Int[Tensor, "batch 2"]) -> Pixels:
    """The same shape elsewhere: moved down and to the right by so many pixels, around the edges."""
    count, height, width = region.shape
    rows = (torch.arange(height, device=region.device) - offset[:, :1]) % height
    columns = (torch.arange(width, device=region.device) - offset[:, 1:]) % width
    sample = torch.arange(count, device=region.device)
    return region[sample[:, None, None], rows[:, :, None], columns[:, None, :]]


def grown(region: Pixels, margin: int) -> Pixels:
    """The region and all within so many pixels of it."""
    near = F.max_pool2d(region[:, None].float(), 2 * margin + 1, stride=1, padding=margin)
    return near[:, 0] > 0
