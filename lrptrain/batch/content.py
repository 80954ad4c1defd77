"""Which tokens of a text are its content: the one rule that cues, metrics, the audit and the page share."""

from collections.abc import Collection, Mapping, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.chunks import chunk_width

SPECIAL = "special_tokens_mask"
"""The entry of a batch that says which tokens are special, where that was found out already."""


def content_tokens(batch: Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """Return True where a token is text: neither padding, nor special, nor ignored by the rationale.

    A rationale names the special tokens in between, such as a separator: it is 255 there. A rationale that is 255
    throughout is no annotation, and excludes nothing.

    Args:
        batch: A batch in the contract's form, with `input_ids` and, where it has them, `attention_mask`,
            `special_tokens_mask` and `rationale`. Only a mask of the shape `[batch, tokens]` tells padding.

    Example:
        `[CLS] good film [SEP] truly [SEP] [PAD]` with the rationale `255 1 0 255 0 255 255` has the content
        `good film truly`; without a rationale it is `good film [SEP] truly`, if all texts have these ends.
    """
    content = attended_tokens(batch) & ~special_tokens(batch)
    if "rationale" in batch:
        ignored = batch["rationale"] == IGNORED
        content = content & ~(ignored & ~ignored.all(1, keepdim=True))
    return content


def special_tokens(
    batch: Mapping[str, Tensor],
    named: Collection[int] = (),
    padding: int = 0,
    seen: Sequence[Collection[int]] | None = None,
) -> Bool[Tensor, "batch tokens"]:
    """Return True at special tokens: those that a tokenizer names, or else the ends that all texts have alike."""
    if SPECIAL in batch:
        return batch[SPECIAL] != 0
    ids = _ids(batch)
    if named:
        named = named if _mask(batch) is not None else {*named, padding}
        return torch.isin(ids, torch.tensor(sorted(named), device=ids.device))
    special = torch.zeros_like(ids, dtype=torch.bool)
    for places, found in zip(_ends(batch), ends_of_texts(batch) if seen is None else seen, strict=True):
        if len(found) == 1:
            special |= places & (ids == next(iter(found)))
    return special


def ends_of_texts(batch: Mapping[str, Tensor]) -> list[set[int]]:
    """Return the ids that texts begin and end with, and those that their chunks do."""
    return [set(_ids(batch)[places].unique().tolist()) for places in _ends(batch)]


def _ids(batch: Mapping[str, Tensor]) -> Int[Tensor, "batch tokens"]:
    """Return the ids of tokens; of those that come as embeddings a checksum, which tells them apart."""
    ids = batch["input_ids"]
    if not ids.is_floating_point():
        return ids
    bits = ids.detach().float().contiguous().view(torch.int32).long()
    return (bits * torch.arange(1, 2 * ids.shape[-1], 2, device=ids.device)).sum(-1)


def _ends(batch: Mapping[str, Tensor]) -> list[Bool[Tensor, "batch tokens"]]:
    """Return True at the first token of every text, at the last, and at those of every chunk."""
    attended = attended_tokens(batch)
    in_chunks = attended.reshape(-1, chunk_width(batch) or attended.shape[1])
    return [mask(rows).view_as(attended) for rows in (attended, in_chunks) for mask in (_first, _last)]


def _first(attended: Bool[Tensor, "rows tokens"]) -> Bool[Tensor, "rows tokens"]:
    return attended & (attended.cumsum(1) == 1)


def _last(attended: Bool[Tensor, "rows tokens"]) -> Bool[Tensor, "rows tokens"]:
    return _first(attended.flip(1)).flip(1)


def attended_tokens(batch: Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """Return True at every token that is no padding; everywhere without an `attention_mask` `[batch, tokens]`."""
    mask = _mask(batch)
    return torch.ones_like(_ids(batch), dtype=torch.bool) if mask is None else mask != 0


def _mask(batch: Mapping[str, Tensor]) -> Tensor | None:
    mask = batch.get("attention_mask")
    return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
