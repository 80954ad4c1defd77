"""Tokens of texts replaced by those of other texts, and random tokens as the control."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens = Bool[Tensor, "batch tokens"]


def lent(
    ids: Int[Tensor, "batch tokens"],
    region: Tokens,
    lenders: Int[Tensor, "batch _tokens"],
    lendable: Bool[Tensor, "batch _tokens"],
    keys: Float[Tensor, "batch _tokens"],
) -> Int[Tensor, "batch tokens"]:
    """The region's tokens replaced by those of other texts, each used once before any is used twice.

    Args:
        ids: Of the texts.
        region: What is replaced.
        lenders: Ids of the text that lends to each.
        lendable: What of it may be lent; a text that lends nothing changes nothing.
        keys: Random numbers, of which the order says what is lent first.
    """
    order = torch.where(lendable, keys, torch.inf).argsort(1)
    count = lendable.sum(1, keepdim=True)
    place = (region.cumsum(1) - 1).clamp(min=0) % count.clamp(min=1)
    return torch.where(region & (count > 0), lenders.gather(1, order.gather(1, place)), ids)


def random_tokens(content: Tokens, count: Int[Tensor, " batch"], keys: Float[Tensor, "batch tokens"]) -> Tokens:
    """So many of the content tokens, by random numbers; all of them where there are fewer."""
    rank = torch.where(content, keys, torch.inf).argsort(1).argsort(1)
    return content & (rank < count[:, None])
