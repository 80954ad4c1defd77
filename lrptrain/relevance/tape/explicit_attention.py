"""Scaled dot-product attention written out, so that its probabilities are tensors of the graph."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def explicit_attention(
    query: Float[Tensor, "*batch queries width"],
    key: Float[Tensor, "*groups keys width"],
    value: Float[Tensor, "*groups keys values"],
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "*batch queries values"]:
    """Compute `softmax(Q K^T * scale + mask) V` with the arguments of `F.scaled_dot_product_attention`.

    A query whose keys are all masked out attends to nothing and yields 0, as the fused kernels do.
    """
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)  # scaled where it is small
    empty = None
    if attn_mask is not None:
        mask, empty = _additive(attn_mask, scores)
        scores = scores + mask
    probabilities = torch.nn.functional.softmax(scores, dim=-1)
    if empty is not None and bool(empty.any()):
        probabilities = probabilities.masked_fill(empty, 0.0)
    if dropout_p > 0:
        probabilities = torch.nn.functional.dropout(probabilities, dropout_p)
    return probabilities @ value


def _additive(mask: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The mask as a finite summand, and which queries it leaves without any key."""
    blocked = torch.isneginf(mask) if mask.dtype != torch.bool else ~mask
    summand = mask if mask.dtype != torch.bool else torch.zeros_like(mask, dtype=scores.dtype)
    return summand.masked_fill(blocked, torch.finfo(scores.dtype).min), blocked.all(-1, keepdim=True)
