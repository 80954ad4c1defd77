"""The costly rules once more, in place and in slices: for relevance that is not differentiated.

Elementwise steps on fresh tensors cost as much as the matrix products between them. Each function here equals the one
of its name in `rules.py`, which says what it computes.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.propagation import rules

Array = Float[Tensor, "..."]
# Rows of a dense layer that are worked on at a time: its intermediates then stay in the processor's cache.
_ROWS = 512
_ENTRIES = 1 << 17


def zplus(
    relevance: Float[Tensor, "*rows out"],
    x: Float[Tensor, "*rows in"],
    weight: Float[Tensor, "out in"],
    z: Float[Tensor, "*rows out"],
    bias: Float[Tensor, " out"] | None,
    takes: bool = False,
) -> Float[Tensor, "*rows in"]:
    """The z+ rule of a dense layer; `z` is its output with the bias, which takes its share or none.

    Rows without relevance cost nothing.
    """
    rows_in = x.reshape(-1, x.shape[-1])
    rows_out = z.reshape(-1, z.shape[-1])
    rows = relevance.reshape(rows_out.shape)
    active = rows.any(-1).nonzero()[:, 0]
    if 2 * len(active) < len(rows):
        passed = _zplus_rows(rows[active], rows_in[active], weight, rows_out[active], bias, takes)
        return torch.zeros_like(rows_in).index_copy_(0, active, passed).view(x.shape)
    return _zplus_rows(rows, rows_in, weight, rows_out, bias, takes).view(x.shape)


def _zplus_rows(relevance: Tensor, x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | None, takes: bool) -> Tensor:
    limits = torch.finfo(z.dtype)
    size_of_weight = weight.abs()
    bias_that_takes = bias if takes else None
    of_bias = 2 * bias.clamp(min=0) if takes and bias is not None else None
    floor = torch.tensor(limits.tiny / limits.eps, dtype=z.dtype, device=z.device)
    result = torch.empty_like(x)
    height = math.ceil(len(x) / max(1, math.ceil(len(x) / _ROWS)))  # slices of one size
    of_x, of_z = ([torch.empty_like(t[:height]) for _ in range(2)] for t in (x, z))  # used by every slice
    for start in range(0, len(x), height or 1):
        rows = slice(start, start + height)
        size_of_x, back, size, share = (buffer[: len(x[rows])] for buffer in (*of_x, *of_z))
        torch.abs(x[rows], out=size_of_x)
        torch.mm(size_of_x, size_of_weight.T, out=size)
        # With z = xW and s = |x||W|, z + s is twice the sum of positive contributions: one product less than to sum
        # them apart.
        torch.add(size, z[rows], out=share)
        if bias is not None:
            share -= bias
        noise = torch.add(floor, size, alpha=16 * limits.eps, out=size)
        share.masked_fill_(share <= noise, 0.0 if of_bias is not None else torch.inf)
        cancelled = ((share < noise.mul_(2 / limits.eps**0.5)) & (share > 0)).any(1)
        if of_bias is not None:
            share += of_bias
            share.masked_fill_(share <= floor, torch.inf)
        torch.div(relevance[rows], share, out=share)
        torch.mm(share, size_of_weight, out=back).mul_(size_of_x)
        torch.addcmul(back, torch.mm(share, weight, out=size_of_x), x[rows], out=result[rows])
        if bool(cancelled.any()):  # less than half of the digits are left of the difference
            result[rows][cancelled] = rules.alpha_beta(
                relevance[rows][cancelled],
                x[rows][cancelled],
                weight,
                1.0,
                0.0,
                F.linear,
                torch.matmul,
                bias_that_takes,
            )
    return result


def divide_(numerator: Array, denominator: Array) -> Array:
    """Divide where it is safe, else 0, into the memory of the denominator."""
    limits = torch.finfo(denominator.dtype)
    for part in torch.split(denominator.view(-1), _ENTRIES):
        part.masked_fill_(part.abs() < limits.tiny / limits.eps, torch.inf)
    return torch.div(numerator, denominator, out=denominator)


def halves(
    relevance: Array, z: Array, a: Array, b: Array, transpose_a: Callable[..., Any], transpose_b: Callable[..., Any]
) -> tuple[Array, Array]:
    """Halve relevance of a product `z` of two activations. Overwrites `z`."""
    share = divide_(relevance, z.mul_(2).contiguous())
    return transpose_a(share).mul_(a), transpose_b(share).mul_(b)


def rescaled_sum(
    relevance: Array, z: Array, operands: tuple[Array, Array], total: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Split relevance of a sum `z` of two operands and give each the absolute share of its sum."""
    share = divide_(relevance, z.clone(memory_format=torch.contiguous_format))
    parts = [torch.mul(operand, share) if operand.shape == z.shape else share * operand for operand in operands]
    sums = [total(part) for part in parts]
    total_relevance = total(relevance)
    absolute = sums[0].abs() + sums[1].abs()
    first, second = (
        part.mul_(divide_(s.abs(), absolute.clone()) * divide_(total_relevance, s.clone()))
        for part, s in zip(parts, sums, strict=True)
    )
    return first, second
