"""`torch.nn.attention.flex_attention`, written out: scores, what the caller makes of them, mask, softmax, sum."""

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.types import UnsupportedOperationError

Scores = Float[Tensor, "batch heads queries keys"]


def asks_for_kernel() -> bool:
    """Whether flex_attention asks if its input requires a gradient, for which its kernel on the CPU has no code."""
    return sys._getframe(2).f_code.co_name == "_validate_device"


def explicit_flex_attention(
    query: Float[Tensor, "batch heads queries width"],
    key: Float[Tensor, "_ groups keys width"],
    value: Float[Tensor, "_ groups keys values"],
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    *_: Any,
) -> tuple[Float[Tensor, "batch heads queries values"], Float[Tensor, "batch heads queries"], Tensor]:
    """Compute what the operator behind `flex_attention` does: output, logarithm (base 2) of the sums, and maxima.

    A query whose keys are all masked out attends to nothing and yields 0.
    """
    if key.shape[1] != query.shape[1]:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = (query * scale) @ key.transpose(-2, -1)
    places = [torch.arange(size, device=query.device) for size in scores.shape]
    scores = _modified(scores, score_mod, places)
    mask = _over_places(block_mask[-1], has_scores=False)(*places)
    masked = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    probabilities = F.softmax(masked, dim=-1)
    empty = ~mask.any(-1, keepdim=True)
    if bool(empty.any()):
        probabilities = probabilities.masked_fill(empty, 0.0)
    logarithm = masked.logsumexp(-1) / math.log(2)
    return probabilities @ value, logarithm, masked.amax(-1)


def _modified(scores: Scores, score_mod: Callable[..., Tensor], places: list[Tensor]) -> Scores:
    """The scores as the caller changes them, one by one: tried on all at once, else as what it adds to them."""
    single = _over_places(score_mod, has_scores=True)
    # Tensors that no tape follows: what they are compared with is not part of the model.
    with torch._C.DisableTorchFunction(), torch.no_grad():
        plain = scores.detach().clone()
        expected = single(plain, *places)
        if torch.equal(expected, plain):
            return scores
    shapes = [[-1 if i == axis else 1 for i in range(4)] for axis in range(4)]
    try:
        together = score_mod(scores, *(place.view(shape) for place, shape in zip(places, shapes, strict=True)))
    except (RuntimeError, IndexError):
        together = scores
    if together.shape == scores.shape and torch.allclose(together.detach(), expected):
        return together
    added = single(torch.zeros_like(plain), *places)
    if torch.allclose(plain + added.detach(), expected):
        return scores + added
    raise UnsupportedOperationError(
        "flex_attention's score_mod changes the scores in a way that cannot be written out; the recording has a gap "
        "there, for every method. Way out: F.scaled_dot_product_attention (in transformers attn_implementation='sdpa')."
    )


def _over_places(function: Callable[..., Tensor], *, has_scores: bool) -> Callable[..., Tensor]:
    """A function of (the score at) one place, as one of all places; the key counts up fastest."""
    scores = (0,) if has_scores else ()
    for axis in (3, 2, 1, 0):
        function = torch.vmap(function, in_dims=(*scores, *(0 if i == axis else None for i in range(4))))
    return function
