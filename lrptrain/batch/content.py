"""Which tokens of a text are its content: the one rule that cues, metrics, the audit and the page share."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.chunks import chunk_width


def content_tokens(batch: Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """Return True where a token is text: neither padding, nor at either end, nor ignored by the rationale.

    The first and the last attended token are where tokenizers put special tokens. A rationale names the special tokens
    in between, such as a separator: it is 255 there. A rationale that is 255 throughout is no annotation, and excludes
    nothing.

    Args:
        batch: A batch in the contract's form, with `input_ids` and, where it has them, `attention_mask` and
            `rationale`. Only a mask of the shape `[batch, tokens]` tells padding.

    Example:
        `[CLS] good film [SEP] truly [SEP] [PAD]` with the rationale `255 1 0 255 0 255 255` has the content
        `good film truly`; without a rationale it is `good film [SEP] truly`.
    """
    attended = attended_tokens(batch)
    content = attended & ~end_tokens(attended, chunk_width(batch))
    if "rationale" in batch:
        ignored = batch["rationale"] == IGNORED
        content = content & ~(ignored & ~ignored.all(1, keepdim=True))
    return content


def attended_tokens(batch: Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """Return True at every token that is no padding; everywhere without an `attention_mask` `[batch, tokens]`."""
    token_ids = batch["input_ids"]
    mask = batch.get("attention_mask")
    if mask is None or mask.ndim != 2:
        return torch.ones(token_ids.shape[:2], dtype=torch.bool, device=token_ids.device)
    return mask != 0


def end_tokens(attended: Bool[Tensor, "batch tokens"], width: int | None = None) -> Bool[Tensor, "batch tokens"]:
    """Return True at the first and the last attended token of every row, whichever side the padding is on.

    Args:
        attended: Which tokens are no padding.
        width: The tokens of a chunk, each of which has its ends; None for texts in one piece.
    """
    if width is not None:
        return end_tokens(attended.reshape(-1, width)).view_as(attended)
    # e.g. attended 0 1 1 1 0 counts 0 1 2 3 3 from the left and 3 3 2 1 0 from the right
    first = attended & (attended.cumsum(1) == 1)
    last = attended & (attended.flip(1).cumsum(1).flip(1) == 1)
    return first | last
