"""Which samples of a training batch have an annotation, and in one form, whichever they came in."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import torch
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


def evidence(batch: Mapping[str, Any]) -> Shaped[Tensor, "batch *area"]:
    """The annotation of a batch: 1 evidence, 0 not, 255 ignored.

    Args:
        batch: In the contract's form (`lrptrain.batch.read_batch`).

    Returns:
        `[batch, height, width]` for images (of the first region where there are several; boxes are drawn),
        `[batch, tokens]` for texts, with padding ignored.

    Raises:
        ValueError: If there is none for this kind of input, or of a wrong shape or other values.
    """
    image = next((batch[name] for name in IMAGES if name in batch), None)
    if image is None:
        return _rationale(batch)
    if "mask" in batch:
        mask = batch["mask"][:, 0] if batch["mask"].ndim == 4 else batch["mask"]
        if mask.ndim != 3:
            raise ValueError(f"'mask' must be [batch, height, width], got {tuple(batch['mask'].shape)}")
        if mask.shape[1:] != image.shape[-2:]:
            raise ValueError(
                f"masks of {tuple(mask.shape[1:])} for images of {tuple(image.shape[-2:])} pixels: bring both to one "
                "size, masks by nearest neighbour"
            )
        split_values(mask, "mask")
        return _plain(mask)
    if "boxes" in batch:
        return boxes_to_mask(batch["boxes"], (image.shape[-2], image.shape[-1]))
    raise ValueError(f"no annotation of images in a batch with {sorted(batch)}: guidance needs 'mask' or 'boxes'")


def _rationale(batch: Mapping[str, Any]) -> Shaped[Tensor, "batch tokens"]:
    if "rationale" not in batch:
        raise ValueError(f"no annotation of texts in a batch with {sorted(batch)}: guidance needs 'rationale'")
    found = batch["rationale"]
    if found.shape != batch["input_ids"].shape:
        raise ValueError(
            f"'rationale' {tuple(found.shape)} must have the shape of 'input_ids' {tuple(batch['input_ids'].shape)}"
        )
    split_values(found, "rationale")
    found, padding = _plain(found), batch.get("attention_mask")
    return found if padding is None else found.masked_fill(padding == 0, IGNORED)


def _plain(annotation: Shaped[Tensor, "batch *area"]) -> Shaped[Tensor, "batch *area"]:
    """In a type that holds 255."""
    return annotation.long() if annotation.dtype == torch.int8 else annotation


def at_tokens(annotation: Shaped[Tensor, "batch *area"], grid: tuple[int, int] | None) -> TokenAnnotation:
    """An annotation made by `evidence`, at the model's tokens; what is all ignored has no part in any loss."""
    return rationale_to_tokens(annotation) if grid is None else mask_to_tokens(annotation, grid)


def guidable(batch: Mapping[str, Any], needs_label: bool) -> Bool[Tensor, " batch"]:
    """Samples with an annotation, in the batch as "evidence", and a label if one is needed.

    Raises:
        ValueError: If labels are missing altogether.
    """
    chosen = annotated(batch["evidence"])
    if not needs_label:
        return chosen
    if "label" not in batch:
        raise ValueError(
            f"no 'label' in a batch with {sorted(batch)}: maps of its class need it; or target='predicted'"
        )
    return chosen & (batch["label"] >= 0).to(chosen.device)


def annotated(annotation: Shaped[Tensor, "batch *area"]) -> Bool[Tensor, " batch"]:
    """Samples of which anything may be judged."""
    return (annotation != IGNORED).flatten(1).any(1)


def drawn(batch: Mapping[str, Any], share: float, seed: int = 0) -> Bool[Tensor, " batch"]:
    """Whether each sample belongs to a fixed random share of all, which its id alone decides.

    Args:
        batch: With `sample_id`, integers or strings.
        share: In 0..1.
        seed: Of the draw.

    Raises:
        ValueError: If there are no ids.
    """
    if "sample_id" not in batch:
        raise ValueError("annotated_fraction below 1 draws samples by their 'sample_id', which the batch lacks")
    return torch.tensor([_uniform(f"{seed}/{each}") < share for each in batch["sample_id"]], dtype=torch.bool)


def _uniform(word: str) -> float:
    """A number in [0, 1) that looks random and depends on the word alone."""
    return int.from_bytes(blake2b(word.encode(), digest_size=7).digest(), "big") / 2**56


def first_rows(chosen: Bool[Tensor, " batch"], most: int | None) -> Tensor:
    """Indices of the chosen samples, no more than `most`."""
    return torch.nonzero(chosen).flatten()[:most]
