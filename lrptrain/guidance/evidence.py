"""Which samples of a training batch have an annotation, and in one form, whichever they came in."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Shaped
from torch import Tensor

from lrptrain.batch import IMAGES
from lrptrain.batch.annotations import (
    IGNORED,
    TokenAnnotation,
    boxes_to_mask,
    mask_to_tokens,
    rationale_to_tokens,
    split_values,
)
from lrptrain.batch.checks import check_aspect_ratio, check_values
from lrptrain.batch.content import content_tokens
from lrptrain.batch.in_place import in_place, turned
from lrptrain.batch.rows import as_rows, has_rows, present_rows, rows_in
from lrptrain.batch.sizes import marks_time

WAY_OUT = (
    "Augment images and masks together, in the dataset, or in Lightning's on_after_batch_transfer (torchvision's v2 "
    "transforms and tv_tensors do both)"
)


def evidence(batch: Mapping[str, Any]) -> Shaped[Tensor, " batch *area"]:
    """Return the annotation of a batch: 1 evidence, 0 not, 255 ignored.

    Returns:
        `[batch, height, width]` for images (of the first region where there are several;
            boxes are drawn, masks of another size resized),
        `[batch, tokens]` for texts, with padding and special tokens ignored, unless they are marked as evidence;
        `[batch, rows]` for rows, such as the instances of a bag, with padding ignored;
        `[batch, time]` for series;
        `[batch, slices, height, width]` for volumes.
    """
    image = next((batch[name] for name in IMAGES if name in batch), None)
    if image is None:
        return _rationale(batch)
    if marks_time(batch):
        split_values(batch["mask"], "mask")
        return _wide(batch["mask"])
    if has_rows(batch) and getattr(batch.get("mask"), "ndim", 0) != 3:  # that of a spectrogram
        return _of_rows(as_rows(batch))
    if image.ndim == 5:
        return _of_volumes(batch)
    if "mask" in batch:
        mask = batch["mask"][:, 0] if batch["mask"].ndim == 4 else batch["mask"]
        if mask.ndim != 3:
            raise ValueError(f"'mask' must be [batch, height, width], got {tuple(batch['mask'].shape)}")
        check_aspect_ratio((mask.shape[1], mask.shape[2]), (image.shape[-2], image.shape[-1]))
        # Called for its check of the values; they are split per token later, by `at_tokens`.
        split_values(mask, "mask")
        return _resized(_wide(mask), (image.shape[-2], image.shape[-1]))
    if "boxes" in batch:
        return boxes_to_mask(batch["boxes"], (image.shape[-2], image.shape[-1]))
    raise ValueError(
        f"no annotation of images in a batch with {sorted(batch)}: guidance needs 'mask' or 'boxes', which the "
        "collator has to keep; batch_adapter= renames other entries"
    )


def _of_volumes(batch: Mapping[str, Any]) -> Shaped[Tensor, "batch slices height width"]:
    if "mask" not in batch:
        raise ValueError(f"no annotation of volumes in a batch with {sorted(batch)}: guidance needs 'mask'")
    check_values({name: batch[name] for name in (*IMAGES, "mask") if name in batch})
    mask = batch["mask"][:, 0] if batch["mask"].ndim == 5 else batch["mask"]
    return _wide(mask)


def _of_rows(batch: Mapping[str, Any]) -> Shaped[Tensor, "batch rows"]:
    if "rationale" not in batch:
        raise ValueError(
            f"no annotation of rows in a batch with {sorted(batch)}: guidance needs 'rationale', a value for each row"
        )
    rationale = batch["rationale"]
    if rationale.shape != rows_in(batch).shape[:2]:
        raise ValueError(
            f"'rationale' {tuple(rationale.shape)} must have a value for each of the rows {tuple(rows_in(batch).shape)}"
        )
    split_values(rationale, "rationale")
    return _wide(rationale).masked_fill(~present_rows(batch), IGNORED)


def _rationale(batch: Mapping[str, Any]) -> Shaped[Tensor, "batch tokens"]:
    if "rationale" not in batch:
        raise ValueError(f"no annotation of texts in a batch with {sorted(batch)}: guidance needs 'rationale'")
    rationale = batch["rationale"]
    if rationale.shape != batch["input_ids"].shape:
        raise ValueError(
            f"'rationale' {tuple(rationale.shape)} must have the shape of 'input_ids' {tuple(batch['input_ids'].shape)}"
        )
    split_values(rationale, "rationale")
    rationale = _wide(rationale)
    # Attention maps have nearly all of their mass on special tokens, of which nobody means to say that they are no
    # evidence: a loss on it would teach nothing of the words.
    return rationale.masked_fill(~content_tokens(batch) & (rationale != 1), IGNORED)


def everything(batch: Mapping[str, Any]) -> Shaped[Tensor, " batch *area"]:
    """Return an annotation by which all of every sample is evidence, for what goes by none."""
    image = next((batch[name] for name in IMAGES if name in batch), None)
    if has_rows(batch):
        return torch.where(present_rows(batch), 1, IGNORED).to(torch.uint8)
    if image is not None:
        return torch.ones((len(image), *image.shape[2:]), dtype=torch.uint8, device=image.device)
    if "input_ids" not in batch:
        raise ValueError(f"a swap takes images or texts, and the batch has {sorted(batch)}")
    return torch.where(content_tokens(batch), 1, IGNORED).to(torch.uint8)


def _resized(
    mask: Shaped[Tensor, "batch height width"], size: tuple[int, int]
) -> Shaped[Tensor, "batch new_height new_width"]:
    """Return masks in the size of their images, by nearest neighbour: 1, 0 and 255 have no values between."""
    if mask.shape[1:] == size:
        return mask
    resized = F.interpolate(mask[:, None].float(), size, mode="nearest-exact")
    return resized[:, 0].to(mask.dtype)


def _wide(annotation: Shaped[Tensor, " batch *area"]) -> Shaped[Tensor, " batch *area"]:
    """Return the annotation in a type that holds 255."""
    return annotation.long() if annotation.dtype == torch.int8 else annotation


def at_tokens(
    annotation: Shaped[Tensor, " batch *area"], grid: tuple[int, ...] | None, tokens: int | None = None
) -> TokenAnnotation:
    """Bring an annotation made by `evidence` to the model's tokens; samples that are all 255 have no part in any loss.

    Args:
        annotation: 1 evidence, 0 not, 255 ignored.
        grid: Rows and columns of an image's tokens, of a volume its slices before them; None for texts.
        tokens: The number of tokens; None for one for each value.
    """
    # Patches that are rows may be those of a grid, and are annotated as rows; a part of a series has several values.
    if annotation.ndim == 2 and tokens not in (None, annotation.shape[1]):
        return mask_to_tokens(annotation, (tokens,))
    is_of_tokens = grid is None or annotation.ndim == 2
    return rationale_to_tokens(annotation) if is_of_tokens or grid is None else mask_to_tokens(annotation, grid)


def guidable_samples(batch: Mapping[str, Any], needs_label: bool) -> Bool[Tensor, " batch"]:
    """Return which samples have an annotation, in the batch as "evidence", and a label if one is needed."""
    guidable = has_annotation(batch["evidence"])
    if not needs_label:
        return guidable
    if "label" not in batch:
        raise ValueError(
            f"no 'label' in a batch with {sorted(batch)}: maps of its class need it; or target='predicted'"
        )
    return guidable & (batch["label"] >= 0).view(len(guidable), -1).any(1).to(guidable.device)


def has_annotation(annotation: Shaped[Tensor, " batch *area"]) -> Bool[Tensor, " batch"]:
    """Return which samples have anything that may be judged."""
    return (annotation != IGNORED).flatten(1).any(1)


def without_annotation(batch: Mapping[str, Any], rows: Collection[int]) -> dict[str, Any]:
    """Return the batch as if nobody had annotated some of its samples."""
    absent = {"mask": IGNORED, "rationale": IGNORED, "boxes": float("nan")}
    filled = dict(batch)
    for name in absent.keys() & batch.keys():
        filled[name] = batch[name].clone()
        filled[name][list(rows)] = absent[name]
    return filled


def contrasted(annotation: Shaped[Tensor, " batch *area"]) -> Bool[Tensor, " batch"]:
    """Return which samples have evidence and something that is not: only these tell one place from another."""
    flat = annotation.flatten(1)
    return (flat == 1).any(1) & (flat == 0).any(1)


def matched_evidence(
    columns: Mapping[str, Any], seen: Tensor, model: str, warn: Callable[[str], None]
) -> Shaped[Tensor, "batch ..."]:
    """Return the evidence in the size in which the step gives the model its images."""
    evidence: Tensor = columns["evidence"]
    image = next((columns[name] for name in IMAGES if name in columns), None)
    if image is None or image.ndim != 4 or seen.ndim != 4:
        return evidence
    if columns.keys() & {"mask", "boxes"}:
        _check_in_place(image, seen, model, warn)
    if seen.shape[2:] == image.shape[2:] or evidence.ndim != 3 or evidence.shape[1:] != image.shape[2:]:
        return evidence
    return F.interpolate(evidence[:, None].float(), seen.shape[2:], mode="nearest-exact")[:, 0].to(evidence.dtype)


def _check_in_place(image: Tensor, seen: Tensor, model: str, warn: Callable[[str], None]) -> None:
    there = in_place(seen, image)
    if there.all():
        return
    number = int((turned(seen, image) & ~there).sum())
    if number:
        raise ValueError(
            f"the training step gives {model} other images than its batch holds: {number} of {len(seen)} are flipped "
            f"or turned, and the annotations are not. {WAY_OUT}"
        )
    warn(
        f"the training step gives {model} other images than its batch holds ({int((~there).sum())} of {len(seen)}). If "
        f"it crops, shifts or turns them, their annotations mark the wrong places. {WAY_OUT}"
    )
