"""Inputs that are rows of numbers: the instances of a bag, patches that are cut out already, frames.

Samples may have different numbers of rows. Where they meet they are padded, and `ROWS` says which rows are theirs; the
model is given each at its own length.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.batch.call import ARGUMENT, IMAGES, ROWS


def has_rows(batch: Mapping[str, Any]) -> bool:
    """Return whether the explained input of a batch is rows, `[batch, rows, numbers]`."""
    return next((batch[name].ndim == 3 for name in IMAGES if name in batch), False)


def rows_in(batch: Mapping[str, Any]) -> Float[Tensor, "batch rows numbers"]:
    """Return the rows of a batch that has some."""
    return next(batch[name] for name in IMAGES if name in batch)


def present_rows(batch: Mapping[str, Any]) -> Bool[Tensor, "batch rows"]:
    """Return which rows are a sample's own: neither padded here, nor masked for the model."""
    rows = rows_in(batch)
    there = torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
    if ROWS in batch:
        there &= batch[ROWS]
    for name, is_padding in row_masks(batch).items():
        there &= (batch[name] == 0) == is_padding[:, None]
    return there


def row_masks(batch: Mapping[str, Any]) -> dict[str, Bool[Tensor, " batch"]]:
    """Return the entries that tell the model which rows are padding, and in which samples 1 stands for padding.

    They are arguments `[batch, rows]` with `mask` in their names. Some models take 1 for padding, others 0, under any
    name. The rows tell: padding is all zeros, and a sample is not all padding. Where they do not, a name does.
    """
    rows = rows_in(batch)
    blank = (rows == 0).all(2)
    found = {}
    for name, values in batch.items():
        if not (name.startswith(ARGUMENT) and "mask" in name and isinstance(values, Tensor)):
            continue
        if values.shape != rows.shape[:2]:
            continue
        marked = values != 0
        of_ones, of_zeros = ((blank | ~marked).all(1), (blank | marked).all(1))
        is_padding = torch.where(of_ones ^ of_zeros, of_ones, torch.full_like(of_ones, "padding" in name))
        found[name] = (is_padding & ~marked.all(1)) | ~marked.any(1)
    return found


def beside_rows(batch: Mapping[str, Any]) -> list[str]:
    """Return the entries that have a value for each row: the rows themselves, their places, masks and annotation."""
    shape = rows_in(batch).shape[:2]
    return [
        name
        for name, values in batch.items()
        if isinstance(values, Tensor) and values.shape[:2] == shape and name not in ("label", ROWS)
    ]


def grid_sizes(batch: Mapping[str, Any]) -> Int[Tensor, "batch 2"] | None:
    """Return how many rows and columns of patches each sample has, where an argument says so; else None.

    It is one of whole numbers `[batch, 2]` whose product is the number of the sample's patches, as `spatial_shapes`.
    """
    counts = present_rows(batch).sum(1)
    for name, values in batch.items():
        if not (name.startswith(ARGUMENT) and isinstance(values, Tensor) and values.shape == (len(counts), 2)):
            continue
        if not values.is_floating_point() and bool((values.prod(1) == counts).all()):
            return values
    return None


def as_rows(batch: Mapping[str, Any], takes_mask: bool = False) -> dict[str, Any]:
    """Return a batch of rows whose mask, a value per row, is their rationale, and whose other masks are arguments.

    Any other batch stays as it is. A `mask` that the model takes as an argument is none of people, and tells padding.
    """
    if not has_rows(batch):
        return dict(batch)
    batch = {f"{ARGUMENT}{name}" if name == "attention_mask" else name: values for name, values in batch.items()}
    mask = batch.get("mask")
    if not (isinstance(mask, Tensor) and mask.shape == rows_in(batch).shape[:2]):
        return batch
    rest = {key: x for key, x in batch.items() if key != "mask"}
    if takes_mask:
        return {f"{ARGUMENT}mask": mask, **rest}
    return {"rationale": mask.to(torch.uint8) if mask.dtype == torch.bool else mask, **rest}
