"""Random tokens of texts, the control of removing some."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TokenMask = Bool[Tensor, "batch tokens"]


def random_tokens(content: TokenMask, count: Int[Tensor, " batch"], keys: Float[Tensor, "batch tokens"]) -> TokenMask:
    """Return `count` of the content tokens of every text, chosen by random numbers; all where there are fewer."""
    # Sorting twice gives ranks: keys .7 .2 .5 are in the order 1 2 0, and have the ranks 2 0 1. What is no content
    # comes last.
    rank = torch.where(content, keys, torch.inf).argsort(1).argsort(1)
    return content & (rank < count[:, None])
