"""Means of per-sample values with a 95 % interval, from states of constant size that processes can merge."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

# Student's t at 97.5 % for 1, 2 ... 10 degrees of freedom; the series takes over where it is accurate.
_SMALL = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139)
NORMAL = 1.959963984540054
"""Standard errors within which a mean of many values lies with 95 %."""


def t_quantile(freedom: Num[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the 97.5 % point of Student's t, within 2e-5 of the truth; nan below one degree of freedom.

    Cornish-Fisher series in 1 / freedom (Abramowitz and Stegun 1964, 26.7.5), and a table where it is too coarse.
    """
    freedom = freedom.to(torch.promote_types(freedom.dtype, torch.float32))
    z = NORMAL
    n = freedom.clamp(min=1)
    # Powers of 1 / n up to the fourth; z is the quantile of the normal distribution, the limit.
    series = (
        z
        + (z**3 + z) / 4 / n
        + (5 * z**5 + 16 * z**3 + 3 * z) / 96 / n**2
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / n**3
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160 / n**4
    )
    table = torch.tensor(_SMALL, dtype=freedom.dtype, device=freedom.device)
    # One degree of freedom is the first entry.
    small = table[n.long().clamp(max=len(_SMALL)) - 1]
    return torch.where(freedom >= 1, torch.where(freedom <= len(_SMALL), small, series), torch.nan)


def empty_moments(rows: int) -> Float[Tensor, "rows 3"]:
    """Return the moments of no samples: (count, mean, sum of squared deviations from it) per row."""
    return torch.zeros(rows, 3)


def moments_by_row(values: Float[Tensor, " batch"], row: Int[Tensor, " batch"], rows: int) -> Float[Tensor, "rows 3"]:
    """Return count, mean and sum of squared deviations of the values in each row; nan values are left out."""
    defined = ~values.isnan()
    values = values[defined].float()
    row = row[defined]
    empty = torch.zeros(rows, device=values.device)
    count = empty.index_add(0, row, torch.ones_like(values))
    # A row without values has the mean 0 and the count 0, so that it adds nothing when merged.
    mean = empty.index_add(0, row, values) / count.clamp(min=1)
    spread = empty.index_add(0, row, (values - mean[row]) ** 2)
    return torch.stack([count, mean, spread], -1)


def merge_moments(parts: Float[Tensor, "parts *rows 3"]) -> Float[Tensor, "*rows 3"]:
    """Return the moments of all parts together (Chan, Golub, LeVeque 1979): no cancellation, unlike sums of squares."""
    count, mean, spread = parts.unbind(-1)
    total = count.sum(0)
    overall = (count * mean).sum(0) / total.clamp(min=1)
    return torch.stack([total, overall, (spread + count * (mean - overall) ** 2).sum(0)], -1)


def mean_with_interval(moments: Float[Tensor, "*rows 3"]) -> dict[str, Float[Tensor, "*rows"]]:
    """Return the mean as `value`, and as `low` and `high` its 95 % t interval over samples.

    nan without samples; the interval is nan below two. It is not cut at the ends of a metric's range.
    """
    count, mean, spread = moments.unbind(-1)
    freedom = count - 1
    # Quantile times standard error, the root of (sample variance / count).
    half = t_quantile(freedom) * (spread / freedom.clamp(min=1) / count.clamp(min=1)).sqrt()
    value = torch.where(count > 0, mean, torch.nan)
    return {"value": value, "low": value - half, "high": value + half}


def products_of_counts(counts: Int[Tensor, "batch cells"]) -> Int[Tensor, "cells cells"]:
    """Return the products of all pairs of counts of a sample, summed over samples, in whole numbers."""
    # Not a matrix product: GPUs have none for whole numbers.
    return (counts[:, :, None] * counts[:, None, :]).sum(0)


def pooled_interval(
    function: Callable[[Tensor], Tensor],
    total: Int[Tensor, " cells"],
    products: Int[Tensor, "cells cells"],
    samples: Int[Tensor, ""],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the 95 % interval of a function of counts that are summed over samples (IoU of pooled pixels, say).

    The delta method: near the totals the function is linear, and the sums of products of counts give its variance
    exactly. For many samples, of which none dominates; with few the interval is too narrow.

    Args:
        function: A differentiable function of the counts; a ratio, so that the number of samples does not matter.
        total: Counts, summed over samples.
        products: Products of all pairs of counts of a sample, summed over samples.
        samples: The number of samples.

    Returns:
        The ends of the interval, low and high; nan below two samples.
    """
    point = total.cpu().double().requires_grad_()
    with torch.enable_grad():
        value = function(point)
        (slope,) = torch.autograd.grad(value, point)
    n = samples.cpu().double()
    point = point.detach()
    # Variance of the linear form around the mean counts: sum of (slope . x)^2 less n times the squared mean.
    spread = slope @ (products.cpu().double() - torch.outer(point, point) / n) @ slope
    freedom = n - 1
    # A total of n samples has n times the variance of one, which is spread / (n - 1).
    half = t_quantile(freedom) * (spread.clamp(min=0) * n / freedom.clamp(min=1)).sqrt()
    low, high = (value.detach() + sign * half for sign in (-1, 1))
    return low.float().to(total.device), high.float().to(total.device)
