"""The z+ rule of a dense layer, in place and in slices: for relevance that is not differentiated.

Elementwise steps on fresh tensors cost as much as the matrix products between them.

On a CPU a comparison, a mask and `any` take several times as long as a product or a minimum of the same numbers: so it
is looked first whether a mask would hide anything, by a minimum. On other devices that would be a wait for an answer.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.fast.switch import instead_of
from lrptrain.relevance.propagation import rules

Array = Float[Tensor, "..."]
# Rows of a dense layer that are worked on at a time: its intermediates then stay in the processor's cache.
_ROWS = 512
_ENTRIES = 1 << 17


def plain_zplus(
    relevance: Float[Tensor, "*rows out"],
    x: Float[Tensor, "*rows in"],
    weight: Float[Tensor, "out in"],
    z: Float[Tensor, "*rows out"],
    bias: Float[Tensor, " out"] | None,
    takes: bool = False,
) -> Float[Tensor, "*rows in"]:
    """What `zplus` returns, by the formula in `rules`."""
    return rules.alpha_beta(relevance, x, weight, 1.0, 0.0, F.linear, torch.matmul, bias if takes else None)


@instead_of(plain_zplus)
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
    active = _holds_any(rows).nonzero()[:, 0]
    if 2 * len(active) < len(rows):
        passed = _zplus_rows(rows[active], rows_in[active], weight, rows_out[active], bias, takes)
        return torch.zeros_like(rows_in).index_copy_(0, active, passed).view(x.shape)
    return _zplus_rows(rows, rows_in, weight, rows_out, bias, takes).view(x.shape)


def _holds_any(rows: Float[Tensor, "rows width"]) -> Bool[Tensor, " rows"]:
    """The rows in which anything is not 0."""
    parts = torch.split(rows, _ROWS) if rows.device.type == "cpu" else (rows,)
    return torch.cat([part.abs().amax(-1) for part in parts]) != 0


def _zplus_rows(relevance: Tensor, x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | None, takes: bool) -> Tensor:
    size_of_weight = weight.abs()
    of_bias = 2 * bias.clamp(min=0) if takes and bias is not None else None
    result = torch.empty_like(x)
    at_once = _ROWS if x.device.type == "cpu" else len(x)
    height = math.ceil(len(x) / max(1, math.ceil(len(x) / max(1, at_once))))  # slices of one size
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
        cancelled = _without_noise_(share, size, of_bias is not None)
        if of_bias is not None:
            _hide_small_(share.add_(of_bias))
        torch.div(relevance[rows], share, out=share)
        torch.mm(share, size_of_weight, out=back).mul_(size_of_x)
        torch.addcmul(back, torch.mm(share, weight, out=size_of_x), x[rows], out=result[rows])
        if cancelled is not None and bool(cancelled.any()):  # less than half of the digits are left of the difference
            result[rows][cancelled] = plain_zplus(
                relevance[rows][cancelled], x[rows][cancelled], weight, z[rows][cancelled], bias, takes
            )
    return result


def _without_noise_(share: Tensor, size: Tensor, takes: bool) -> Tensor | None:
    """Hide sums of positive contributions that are nothing but rounding, in place."""
    limits = torch.finfo(share.dtype)
    much = 2 / limits.eps**0.5
    # Where every sum is far above its rounding, there is nothing to hide.
    if share.device.type == "cpu":
        pairs = zip(_parts(share.view(-1)), _parts(size.view(-1)), strict=True)
        margins = (torch.sub(sums, sizes, alpha=16 * limits.eps * much).amin() for sums, sizes in pairs)
        if all(bool(margin > much * _floor(share.dtype)) for margin in margins):
            return None
    noise = size.mul_(16 * limits.eps).add_(_floor(share.dtype))
    share.masked_fill_(share <= noise, 0.0 if takes else torch.inf)
    return ((share < noise.mul_(much)) & (share > 0)).any(1)


def _floor(precision: torch.dtype) -> float:
    """What is smaller may overflow as a denominator."""
    limits = torch.finfo(precision)
    return limits.tiny / limits.eps


def _hide_small_(denominator: Array) -> Array:
    """Make nothing of what is divided by numbers that are too small for it, in place; the numbers lie in a row."""
    sizes = denominator.abs()
    if denominator.device.type == "cpu" and bool(sizes.amin() >= _floor(denominator.dtype)):
        return denominator
    return denominator.masked_fill_(sizes < _floor(denominator.dtype), torch.inf)


def _parts(flat: Array) -> tuple[Array, ...]:
    """Entries that fit into a cache; on other devices all of them."""
    return torch.split(flat, _ENTRIES) if flat.device.type == "cpu" and len(flat) else (flat,)
