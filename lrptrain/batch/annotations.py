"""Annotations (masks, boxes, rationales) brought to the model's tokens.

Everywhere 1 is evidence, 0 is not, 255 is ignored; a sample whose every value is 255 carries no annotation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped, UInt8
from torch import Tensor

IGNORED = 255
NO_CONTENT = (
    "marks padding or special tokens alone: it belongs to other tokens (made without special tokens, or padded on the "
    "other side?)"
)
EVERYTHING = "mark everything: nothing outside of them can be a shortcut (is 1 the evidence, and 0 all else?)"


@dataclass(frozen=True)
class TokenAnnotation:
    """How much of each token is evidence, and how much of it can be judged at all.

    Attributes:
        evidence: The share of each token's un-ignored area that is evidence, in [0, 1]; 0 where nothing is valid.
        valid: The share of each token's area that is not ignored, in [0, 1].
    """

    evidence: Float[Tensor, "batch tokens"]
    valid: Float[Tensor, "batch tokens"]

    def __post_init__(self):
        if self.evidence.shape != self.valid.shape:
            raise ValueError(
                f"evidence {tuple(self.evidence.shape)} and valid {tuple(self.valid.shape)} must have one shape"
            )

    @property
    def usable(self) -> Bool[Tensor, "batch tokens"]:
        """True at tokens of which any part is valid."""
        return self.valid > 0

    @property
    def marked(self) -> Bool[Tensor, "batch tokens"]:
        """True at usable tokens of which at least half is evidence: the annotation as yes or no."""
        return self.usable & (self.evidence >= 0.5)

    @property
    def present(self) -> Bool[Tensor, " batch"]:
        """True for samples with an annotation, that is a usable token. An annotation that marks nothing is present."""
        return self.usable.any(-1)

    @property
    def chance(self) -> Float[Tensor, " batch"]:
        """The annotated share of the valid area, in [0, 1], which a uniform map has inside; nan if absent."""
        # `evidence` is a share of the valid area, so that the product is the evidence's share of the whole token.
        return (self.evidence * self.valid).sum(-1) / self.valid.sum(-1)


def mask_to_tokens(mask: Shaped[Tensor, " batch *places"], grid: tuple[int, ...]) -> TokenAnnotation:
    """Return the exact share of each patch that a mask marks, also where the borders of patches cut through pixels.

    Args:
        mask: 1 evidence, 0 not, 255 ignored, in any dtype (bool works too). Its size need not be that of the image.
        grid: Rows and columns of patches, of a volume its slices before them; tokens are ordered row by row.

    Returns:
        The annotation at `rows * columns` tokens, float32.
    """
    if mask.ndim != len(grid) + 1:
        places = "height, width" if len(grid) == 2 else "slices, height, width"
        raise ValueError(f"mask must be [batch, {places}], got shape {tuple(mask.shape)}")
    if min(grid) < 1:
        raise ValueError(f"grid must be (rows, columns), both positive, got {grid}")
    areas = [_patch_areas(part, grid) for part in split_values(mask, "mask")]
    return _annotation(*areas)


def regions_to_tokens(
    regions: Shaped[Tensor, "batch regions *places"], names: Sequence[str], grid: tuple[int, ...]
) -> dict[str, TokenAnnotation]:
    """Return one annotation per named region; see `mask_to_tokens`.

    Args:
        regions: One mask per region. A region that is all 255 is absent for that sample.
        names: One name per region, all different.
        grid: Rows and columns of patches.
    """
    if regions.ndim != len(grid) + 2:
        raise ValueError(f"regions must be [batch, regions, height, width], got shape {tuple(regions.shape)}")
    if len(names) != regions.shape[1] or len(set(names)) != len(names):
        raise ValueError(
            f"{regions.shape[1]} regions need as many different names, got {list(names)}: name them "
            "(show=lrptrain.Show(region_names=...), the first is the evidence), or pass the evidence, mask[:, 0]"
        )
    return {name: mask_to_tokens(mask, grid) for name, mask in zip(names, regions.unbind(1), strict=True)}


def boxes_to_mask(boxes: Float[Tensor, "batch boxes 4"], size: tuple[int, int]) -> UInt8[Tensor, "batch height width"]:
    """Draw boxes: a pixel is evidence if its centre lies in any box of its image.

    A box between the centres is drawn as the pixels in its middle: what lies in the image is never lost.

    Args:
        boxes: (x1, y1, x2, y2) in pixels, padded with all-NaN boxes; what lies outside the image is clipped.
        size: Height and width of the image the boxes belong to.

    Returns:
        1 inside, 0 outside, all 255 for an image with no box.
    """
    if boxes.ndim != 3 or boxes.shape[-1] != 4:
        raise ValueError(f"boxes must be [batch, boxes, 4] as (x1, y1, x2, y2), got shape {tuple(boxes.shape)}")
    boxes = boxes.to(torch.promote_types(boxes.dtype, torch.float32))
    # Images have different numbers of boxes; the shorter lists end with boxes of four NaN.
    padding = boxes.isnan().all(-1)
    x1, y1, x2, y2 = boxes.unbind(-1)
    if not (padding | ((x1 < x2) & (y1 < y2))).all():
        raise ValueError(
            "a box is (x1, y1, x2, y2) with x1 < x2 and y1 < y2, or all NaN as padding (is yours x, y, w, h?)"
        )
    inside_y = _centres_inside(y1, y2, size[0])
    inside_x = _centres_inside(x1, x2, size[1])
    # [batch, height, boxes] @ [batch, boxes, width]: in how many boxes each pixel lies
    covering = inside_y.float().mT @ inside_x.float()
    mask = (covering > 0).to(torch.uint8)
    return mask.masked_fill(padding.all(-1)[:, None, None], IGNORED)


def rationale_to_tokens(
    rationale: Shaped[Tensor, "batch tokens"], attention_mask: Shaped[Tensor, "batch tokens"] | None = None
) -> TokenAnnotation:
    """Return a rationale as an annotation, in which padding is ignored.

    Args:
        rationale: 1 evidence, 0 not, 255 ignored, one value per token, in any dtype (bool works too).
        attention_mask: The tokenizer's mask: not 0 for real tokens, 0 for padding.
    """
    if rationale.ndim != 2:
        raise ValueError(f"rationale must be [batch, tokens], got shape {tuple(rationale.shape)}")
    if attention_mask is not None and attention_mask.shape != rationale.shape:
        raise ValueError(
            f"attention_mask {tuple(attention_mask.shape)} must have the shape of rationale {tuple(rationale.shape)}"
        )
    evidence, valid = split_values(rationale, "rationale")
    if attention_mask is not None:
        valid = valid & (attention_mask != 0)
    return _annotation((evidence & valid).float(), valid.float())


def spans_to_rationale(
    spans: Sequence[Sequence[tuple[int, int]] | None], offsets: Shaped[Tensor, "batch tokens 2"]
) -> UInt8[Tensor, "batch tokens"]:
    """Turn character spans into one value per token: 1 for every token that overlaps a span.

    Args:
        spans: For each sample the (start, end) of its evidence in characters, end excluded; None for no annotation.
        offsets: The `offset_mapping` of a Hugging Face fast tokenizer, for one text per sample. Tokens that cover no
            character, such as special tokens and padding with (0, 0), become 255.

    Returns:
        1 evidence, 0 not, 255 ignored. A span behind a truncation marks no token.
    """
    if offsets.ndim != 3 or offsets.shape[-1] != 2 or len(spans) != offsets.shape[0]:
        raise ValueError(
            f"offsets must be [{len(spans)}, tokens, 2] for {len(spans)} samples, got {tuple(offsets.shape)}"
        )
    starts, ends = offsets.unbind(-1)
    rationale = torch.zeros(offsets.shape[:2], dtype=torch.uint8, device=offsets.device)
    for row, sample in enumerate(spans):
        for start, end in sample or ():
            if not 0 <= start < end:
                raise ValueError(f"sample {row}: a span is (start, end) with 0 <= start < end, got {(start, end)}")
            # Half-open intervals overlap if each starts before the other ends: (0, 4) marks a token (3, 7), not (4, 7).
            rationale[row, (starts[row] < end) & (ends[row] > start)] = 1
    absent = torch.tensor([sample is None for sample in spans], dtype=torch.bool, device=offsets.device)
    return rationale.masked_fill((starts >= ends) | absent[:, None], IGNORED)


def no_evidence(name: str) -> str:
    """Return what is wrong with an annotation of 0 and 255 without a 1, and the remedy."""
    return (
        f"{name!r} of a batch holds 0 and 255 and never 1, but 1 is evidence and 255 is ignored: "
        f"if 255 marks the evidence, as in most PNG files, pass `{name} > 0`"
    )


def mixes_0_and_255(batch: Mapping[str, Any], name: str) -> bool:
    """Return whether any mask or rationale of a batch has both 0 and 255, as if 255 were meant as evidence."""
    values = batch[name]
    mixed = _mixed_masks(values) if name == "mask" else _mixed_rationales(values, batch.get("attention_mask"))
    return bool(mixed.any())


def _mixed_masks(masks: Shaped[Tensor, " batch *shape"]) -> Bool[Tensor, " planes"]:
    """Return which masks, of one region and sample each, hold both 0 and 255."""
    planes = masks.flatten(0, max(masks.ndim - 3, 0)).flatten(1)  # [batch, regions, height, width] has many per sample
    return (planes == 0).any(1) & (planes == IGNORED).any(1)


def _mixed_rationales(
    rationales: Shaped[Tensor, "batch tokens"], attention_mask: Shaped[Tensor, "batch tokens"] | None
) -> Bool[Tensor, " batch"]:
    """Return which rationales hold 0 and, where no special token or padding explains it, 255.

    [CLS] good film [SEP] [PAD]
     255    0    0   255   255   nothing is evidence: 255 at both ends says that it marks special tokens
      0    255   0    0     0    255 is meant as evidence
    """
    ignored = rationales == IGNORED
    masked = attention_mask is not None and attention_mask.shape == rationales.shape
    attended = attention_mask != 0 if masked and attention_mask is not None else torch.ones_like(ignored)
    # e.g. attended [1, 1, 1, 0] has the places [1, 2, 3, 3]: the first is 1, the last the highest, whichever side is
    # padded.
    places = attended.cumsum(-1)
    at_ends = attended & ((places == 1) | (places == places[..., -1:]))
    # 255 within the text, where no special token is expected ...
    unexplained = ignored & attended & ~at_ends
    if not masked:  # what is ignored at the ends may be padding
        unexplained &= ~_run_at_the_start(ignored) & ~_run_at_the_start(ignored.flip(-1)).flip(-1)
    # ... unless both ends are 255, too: then it marks special tokens, and separators within are such.
    ends_ignored = (ignored | ~at_ends).all(-1)
    return unexplained.any(-1) & ~ends_ignored & ((rationales == 0) & attended).any(-1)


def _run_at_the_start(values: Bool[Tensor, "batch tokens"]) -> Bool[Tensor, "batch tokens"]:
    return values.long().cumprod(-1) > 0


def split_values(values: Shaped[Tensor, "*shape"], name: str) -> tuple[Bool[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """Split 1 / 0 / 255 into (evidence, valid)."""
    numbers = values.float()
    evidence = numbers == 1
    valid = numbers != IGNORED
    other = numbers[valid & ~evidence & (numbers != 0)]
    if other.numel():
        found = other.unique()
        # A few whole numbers are classes, or the parts of a trimap: what is above 0 is not the evidence then.
        are_classes = len(found) <= 5 and bool((found == found.round()).all())
        binary = f"`{name} == {found[0]:g}` where that is the evidence" if are_classes else f"`({name} > 0.5)`"
        raise ValueError(
            f"{name} must be 1 (evidence), 0 (not) or 255 (ignored), found {found[:5].tolist()}: "
            f"binarise it first, for example {binary}"
        )
    return evidence, valid


def _annotation(evidence_area: Tensor, valid_area: Tensor) -> TokenAnnotation:
    # 0 / 0 is nan in the branch that is not taken; annotations have no gradient that it could spoil.
    share = torch.where(valid_area > 0, evidence_area / valid_area, 0)
    return TokenAnnotation(evidence=share, valid=valid_area)


def _patch_areas(part: Bool[Tensor, " batch *places"], grid: tuple[int, ...]) -> Float[Tensor, "batch tokens"]:
    """Return the share of each patch that `part` covers: sums of whole numbers, exact up to the last division."""
    areas = part.float()
    # Pixels become patches along one axis after the other. Half precision would round sums above 2048.
    with torch.autocast(part.device.type, enabled=False):
        for axis, cells in enumerate(grid, start=1):
            overlap = _overlap(cells, areas.shape[axis], part.device)
            areas = (areas.movedim(axis, -1) @ overlap.T).movedim(-1, axis)
    return areas.flatten(1) / part.shape[1:].numel()


def _overlap(cells: int, pixels: int, device: torch.device) -> Float[Tensor, "cells pixels"]:
    """Return the length that each cell shares with each pixel, where a cell is `pixels` and a pixel `cells` long."""
    # e.g. 2 cells of 3 pixels: cells [0, 3) and [3, 6), pixels [0, 2), [2, 4) and [4, 6), so that the middle pixel is
    # shared: [[2, 1, 0], [0, 1, 2]]. Whole numbers, where the ratio 3 / 2 would round for other sizes.
    cell = torch.arange(cells, device=device)[:, None] * pixels
    pixel = torch.arange(pixels, device=device)[None, :] * cells
    shared = torch.minimum(cell + pixels, pixel + cells) - torch.maximum(cell, pixel)
    return shared.clamp(min=0).float()


def _centres_inside(
    low: Float[Tensor, "batch boxes"], high: Float[Tensor, "batch boxes"], length: int
) -> Bool[Tensor, "batch boxes length"]:
    """Return which pixels have their centre between two edges, or else the single pixel in the middle of them."""
    pixels = torch.arange(length, device=low.device)
    centres = pixels.to(low.dtype) + 0.5
    inside = (low[..., None] <= centres) & (centres < high[..., None])
    # e.g. edges at 2.6 and 3.4, between the centres 2.5 and 3.5: their middle 3.0 is of pixel 3.
    middle = ((low.clamp(min=0) + high.clamp(max=length)) / 2).floor().clamp(max=length - 1)
    lost = ~inside.any(-1) & (low < length) & (high > 0)
    return inside | (lost[..., None] & (pixels == middle[..., None]))
