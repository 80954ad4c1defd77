"""Does a model see the images of a batch where the batch holds them? Their annotations do not move with them."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Shaped
from torch import Tensor

from lrptrain.batch.sizes import MOST_CHANNELS

Seen = Shaped[Tensor, "batch channels *places"]
ROUNDING = 0.01
"""What is left of a line, relative to the contrast, where values were rounded to 8 bits and resized."""
_BYTE = 1 / 255
_RESIZES: tuple[dict[str, Any], ...] = (
    *({"mode": mode, "antialias": antialias} for mode in ("bilinear", "bicubic") for antialias in (True, False)),
    *({"mode": mode} for mode in ("nearest", "nearest-exact", "area")),
)


def in_place(seen: Seen, image: Shaped[Tensor, "batch planes *others"]) -> Bool[Tensor, " batch"]:
    """Return which images are the batch's own, recoloured and resized at most.

    The values of a pixel are then a linear map of the batch's values at the same pixel, the same map for all pixels of
    an image: so are a normalisation, brightness, contrast, saturation, a grey image, other orders of channels.
    """
    image = image.to(seen.device)
    if seen.shape == image.shape and torch.equal(seen, image.to(seen.dtype)):
        return torch.ones(len(seen), dtype=torch.bool, device=seen.device)
    if seen.shape[2:] == image.shape[2:]:
        return _is_recoloured(seen, image)
    if seen.ndim != 4 or image.ndim != 4:
        return torch.zeros(len(seen), dtype=torch.bool, device=seen.device)
    resized = (F.interpolate(image.detach().float(), seen.shape[2:], **how) for how in _RESIZES)
    return torch.stack([_is_recoloured(seen, each) for each in resized]).any(0)


def turned(seen: Seen, image: Shaped[Tensor, "batch planes *places"]) -> Bool[Tensor, " batch"]:
    """Return which images are the batch's own, mirrored or turned by quarters; symmetric ones are in place as well."""
    image = image.to(seen.device)
    turns = [each.rot90(quarters, (2, 3)) for each in (image, image.flip(-1)) for quarters in range(4)][1:]
    fitting = [_is_recoloured(seen, each) for each in turns if each.shape[2:] == seen.shape[2:]]
    none = torch.zeros(len(seen), dtype=torch.bool, device=seen.device)
    return torch.stack([none, *fitting]).any(0)


def _is_recoloured(seen: Seen, image: Seen) -> Bool[Tensor, " batch"]:
    """Return for which images a linear map of the channels, and a constant each, gives what was seen at every pixel."""
    y, x = (each.detach().float().flatten(2) for each in (seen, image))
    # Of more channels than pixels some map gives anything: then each is a line of the same channel.
    if max(y.shape[1], x.shape[1]) > MOST_CHANNELS:
        if y.shape != x.shape:
            return torch.zeros(len(y), dtype=torch.bool, device=y.device)
        return _is_recoloured(*(each.flatten(0, 1)[:, None] for each in (y, x))).view(y.shape[:2]).all(1)
    x, centred = x - x.mean(2, keepdim=True), y - y.mean(2, keepdim=True)
    # The channels of a grey image in three depend on one another. What is dropped here is a third of the bound at most.
    back = torch.linalg.pinv(x @ x.mT, hermitian=True, rtol=ROUNDING**2 / 10)
    left = centred - (centred @ x.mT) @ back @ x
    # What is rounded is the value, and of a nearly flat image that is more than its contrast.
    step = max(torch.finfo(each.dtype).eps if each.is_floating_point() else _BYTE for each in (seen, image))
    least = ROUNDING * centred.flatten(1).norm(dim=1) + step * y.flatten(1).norm(dim=1)
    return left.flatten(1).norm(dim=1) <= least
