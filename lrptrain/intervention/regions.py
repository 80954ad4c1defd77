"""Which pixels or tokens of a sample are meant."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch import IMAGES, Sample
from lrptrain.batch.annotations import IGNORED, boxes_to_mask
from lrptrain.batch.content import content_tokens
from lrptrain.cues.boxes import Box
from lrptrain.intervention.casing import CasedText
from lrptrain.intervention.lengths import inner_tokens
from lrptrain.intervention.swap import outside_evidence, ring_share
from lrptrain.intervention.words import TextWords

WORDINGS = ("words", "punctuation", "markers", "case")
"""What a text takes from another one word by word."""


@dataclass(frozen=True)
class Region:
    """A part of every sample.

    Attributes:
        kind: `"outside"`: all but the evidence. `"named"`: a named region of the annotation. `"patches"`: patches of an
            image. `"statistics"`: the mean and spread of an image's channels, which lie at all pixels. `"detail"`: the
            strength of its fine detail, and `"shading"`: how light falls across it, likewise. `"edges"`: what lies
            along its edges. `"location"`: where the evidence lies in an image. `"size"`: how large it is there.
            `"mark"`: a piece of one image that is put into others. `"boxes"`: a box in every image, wherever it lies
            there. `"common"`: what the images of a class have in common at a place, drawn on others. `"token"`: every
            occurrence of a token in a text.
            `"place"`: a place in a text. `"length"`: how long a text is, which lies at all of its tokens. `"words"`:
            words of one kind in texts; `"punctuation"`; `"markers"`: links, numbers and the like; and `"case"`:
            capitals.
        which: For `"named"` the index of the region; for `"patches"` the indices of the tokens, row by row; for
            `"mark"` the index of the sample, and top, left, bottom and right of the piece; for `"common"` the class,
            rows and columns of a grid of cells, and the indices of the cells, row by row; for a property of images
            the class that gives it to others, in a tuple, or 0 where they all exchange it; for `"token"` its id; for
            `"place"` 0 for the first content token, -1 for the last, and so on.
        exchanged: Whether a place, patches or a place in a text, takes what another sample has in the same place,
            rather than to be removed.
        boxes: For `"boxes"` that of every sample, None for one without.
        texts: For `"words"`, `"punctuation"` and `"markers"` the words of every sample; for `"case"` the ways in which
            each can be written, None for one that cannot.
    """

    kind: Literal[
        "outside",
        "named",
        "patches",
        "statistics",
        "detail",
        "shading",
        "edges",
        "location",
        "size",
        "mark",
        "boxes",
        "common",
        "token",
        "place",
        "length",
        "words",
        "punctuation",
        "markers",
        "case",
    ]
    which: int | tuple[int, ...] = 0
    exchanged: bool = False
    boxes: tuple[Box | None, ...] = ()
    texts: tuple[TextWords, ...] | tuple[CasedText | None, ...] = ()

    @property
    def is_place(self) -> bool:
        """Whether every sample has it in the same place, so that samples can exchange it."""
        return self.kind in ("patches", "place")

    def in_exchange(self) -> "Region":
        """Return the same place, to be exchanged between samples."""
        return replace(self, exchanged=True)

    @property
    def by_annotation(self) -> bool:
        """Whether an annotation says where it is."""
        return self.kind in ("outside", "named", "location", "size")

    @property
    def is_property(self) -> bool:
        """Whether it is a property of the whole sample or of its evidence, or its edges: it can only be swapped."""
        return (
            self.kind in ("statistics", "detail", "shading", "edges", "location", "size", "length") or self.is_wording
        )

    @property
    def towards(self) -> int | None:
        """The class whose probability is to rise; None where that of each sample's answer is to fall."""
        of_class = self.kind == "common" or self.is_property
        return self.which[0] if of_class and isinstance(self.which, tuple) else None

    @property
    def is_wording(self) -> bool:
        """Whether it is what a text says in certain words, or how they are written."""
        return self.kind in WORDINGS


def image_of(batch: Mapping[str, Tensor]) -> tuple[str, Tensor]:
    """Return the name of the images in a batch, and the images."""
    return next((name, batch[name]) for name in IMAGES if name in batch)


def images_of(samples: Iterable[Sample]) -> list[Tensor]:
    """Return the image of every sample that has one, by the same name as `image_of`; none of texts."""
    named = [sample.tensors for sample in samples if any(name in sample.tensors for name in IMAGES)]
    return [image_of(tensors)[1] for tensors in named]


def pixels(
    region: Region, batch: Mapping[str, Tensor], grid: tuple[int, int], margin: int | None = None
) -> Bool[Tensor, "batch height width"]:
    """Return where a region lies in images; nowhere in those without an annotation that it needs.

    Args:
        region: The region.
        batch: The images, with their annotations.
        grid: Rows and columns of the tokens.
        margin: What lies outside the evidence begins so many pixels away from it; None for `default_margin`.
    """
    _, images = image_of(batch)
    size = images.shape[-2], images.shape[-1]
    if region.kind in ("statistics", "detail", "shading", "edges", "mark"):  # there is no sample that has no such place
        return torch.ones((len(images), *size), dtype=torch.bool, device=images.device)
    if region.kind == "common":
        assert isinstance(region.which, tuple)
        _, rows, columns, *chosen = region.which
        return pixels(Region("patches", tuple(chosen)), batch, (rows, columns))
    if region.kind == "patches":
        assert isinstance(region.which, tuple)
        cells = torch.zeros(grid[0] * grid[1], device=images.device)
        cells[list(region.which)] = 1
        return _enlarged(cells.view(1, 1, *grid), size)[:, 0].expand(len(images), -1, -1)
    values = annotation_in(batch, size, region.which if region.kind == "named" else 0)
    if region.kind == "outside":
        return outside_evidence(values, margin)
    return values == 1


def inside_boxes(boxes: Sequence[Box | None], size: tuple[int, int]) -> Bool[Tensor, "batch height width"]:
    """Return the pixels inside the box of every image; none of one without a box.

    Args:
        boxes: The box of each image, in its pixels.
        size: Rows and columns of the images.
    """
    inside = torch.zeros((len(boxes), *size), dtype=torch.bool)
    for pixels_of_image, box in zip(inside, boxes, strict=True):
        if box is not None:
            pixels_of_image[box.top : box.bottom, box.left : box.right] = True
    return inside


def kept_by_margin(samples: Iterable[Sample], margin: int) -> float:
    """Return which share of what lies outside the evidence a margin keeps, in the mean over the images; nan of none.

    Args:
        samples: Samples, with their annotations; texts have no margin.
        margin: Pixels around the evidence.
    """
    shares = []
    for sample in samples:
        batch = {name: values[None] for name, values in sample.tensors.items()}
        if any(name in batch for name in IMAGES):
            image = image_of(batch)[1]
            shares.append(ring_share(annotation_in(batch, (image.shape[-2], image.shape[-1]), 0), margin))
    defined = [share for share in shares if not math.isnan(share)]
    return sum(defined) / len(defined) if defined else math.nan


def tokens(region: Region, batch: Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """Return where a region lies in texts, among the content tokens."""
    if region.kind == "length" or region.is_wording:
        return inner_tokens(batch)
    content = content_tokens(batch)
    if region.kind == "token":
        return content & (batch["input_ids"] == region.which)
    if region.kind == "place":
        assert isinstance(region.which, int)
        # e.g. content 0 1 1 1 0 counts -1 0 1 2 2 from the front and, less its length of 3, -4 -3 -2 -1 -1 from the
        # back.
        forward = content.cumsum(1) - 1
        place = forward if region.which >= 0 else forward - content.sum(1, keepdim=True)
        return content & (place == region.which)
    if "rationale" not in batch:
        return torch.zeros_like(content)
    # A text in which nothing is evidence has no outside: swapping it all would leave no text to judge.
    return content & (batch["rationale"] == 0) & (batch["rationale"] == 1).any(1, keepdim=True)


def annotation_in(batch: Mapping[str, Tensor], size: tuple[int, int], index: int | tuple[int, ...] = 0) -> Tensor:
    """Return 1 evidence, 0 not, 255 ignored, at the images' size; all ignored without an annotation."""
    if "mask" in batch:
        mask = batch["mask"]
        mask = mask[:, index] if mask.ndim == 4 else mask
        return _enlarged(mask[:, None].float(), size, torch.float32)[:, 0]
    if "boxes" in batch:
        return boxes_to_mask(batch["boxes"], size).float()
    images = image_of(batch)[1]
    return torch.full((len(images), *size), IGNORED, device=images.device)


def _enlarged(values: Tensor, size: tuple[int, int], dtype: torch.dtype = torch.bool) -> Tensor:
    """Return each value over all pixels that are nearest to it."""
    return F.interpolate(values, size, mode="nearest-exact").to(dtype)
