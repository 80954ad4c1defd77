"""Which pixels or tokens of a sample are meant."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch import IMAGES
from lrptrain.batch.annotations import IGNORED, boxes_to_mask
from lrptrain.batch.content import content_tokens
from lrptrain.intervention.images import grown


@dataclass(frozen=True)
class Region:
    """A part of every sample.

    Attributes:
        kind: `"outside"` the annotation; the annotation's region `"named"`; `"patches"` of an image, `"token"` or
            `"place"` of a text.
        which: Of `"named"`: its index. Of `"patches"`: indices of the tokens, row by row. Of `"token"`: its id. Of
            `"place"`: 0 for the first content token, -1 for the last, and so on.
    """

    kind: Literal["outside", "named", "patches", "token", "place"]
    which: int | tuple[int, ...] = 0

    @property
    def by_annotation(self) -> bool:
        """Whether an annotation says where it is."""
        return self.kind in ("outside", "named")


def image_of(batch: Mapping[str, Tensor]) -> tuple[str, Tensor]:
    """The images of a batch and under which name."""
    return next((name, batch[name]) for name in IMAGES if name in batch)


def pixels(region: Region, batch: Mapping[str, Tensor], grid: tuple[int, int]) -> Bool[Tensor, "batch height width"]:
    """Where a region lies in images; nowhere in those without an annotation that it needs.

    What lies outside the annotation begins a few pixels away from it: at an exact edge its shape would stay behind.
    """
    _, images = image_of(batch)
    size = images.shape[-2], images.shape[-1]
    if region.kind == "patches":
        assert isinstance(region.which, tuple)
        cells = torch.zeros(grid[0] * grid[1], device=images.device)
        cells[list(region.which)] = 1
        return _enlarged(cells.view(1, 1, *grid), size)[:, 0].expand(len(images), -1, -1)
    values = _annotation(batch, size, region.which if region.kind == "named" else 0)
    marked = values == 1
    if region.kind == "named":
        return marked
    kept = grown(marked | (values == IGNORED), margin(size))
    return ~kept & marked.flatten(1).any(1)[:, None, None]


def margin(size: tuple[int, int]) -> int:
    """Pixels around the annotation that count as its own: 2 at 32 and 4 at 224 pixels."""
    return max(2, min(size) // 56)


def tokens(region: Region, batch: Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """Where a region lies in texts, among the content tokens."""
    content = content_tokens(batch)
    if region.kind == "token":
        return content & (batch["input_ids"] == region.which)
    if region.kind == "place":
        assert isinstance(region.which, int)
        forward = content.cumsum(1) - 1
        place = forward if region.which >= 0 else forward - content.sum(1, keepdim=True)
        return content & (place == region.which)
    if "rationale" not in batch:
        return torch.zeros_like(content)
    return content & (batch["rationale"] == 0) & (batch["rationale"] == 1).any(1, keepdim=True)


def _annotation(batch: Mapping[str, Tensor], size: tuple[int, int], index: int | tuple[int, ...]) -> Tensor:
    """1 evidence, 0 not, 255 ignored, at the images' size; all ignored without an annotation."""
    if "mask" in batch:
        mask = batch["mask"]
        mask = mask[:, index] if mask.ndim == 4 else mask
        return _enlarged(mask[:, None].float(), size, torch.float32)[:, 0]
    if "boxes" in batch:
        return boxes_to_mask(batch["boxes"], size).float()
    images = image_of(batch)[1]
    return torch.full((len(images), *size), IGNORED, device=images.device)


def _enlarged(values: Tensor, size: tuple[int, int], dtype: torch.dtype = torch.bool) -> Tensor:
    """Each value over all pixels that are nearest to it."""
    return F.interpolate(values, size, mode="nearest-exact").to(dtype)
