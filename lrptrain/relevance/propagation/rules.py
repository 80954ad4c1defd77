"""One pure function per propagation rule: relevance of an operation's output to relevance of its inputs.

All are ordinary differentiable tensor functions. `z` is an operation's output; `R` relevance at the output.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Array = Float[Tensor, "..."]
# A map that is linear in x: (x, weight) -> output, and its transpose (output-shaped, weight) -> x-shaped.
Linear = Callable[[Tensor, Tensor], Tensor]


def safe_divide(numerator: Array, denominator: Array, stabiliser: float = 0.0) -> Array:
    """Divide; 0 where the denominator is 0, or so small that a quotient could overflow.

    The published code of Chefer et al. 2021 adds 1e-9 to every denominator, whatever its sign. That constant makes the
    result depend on the scale of a model's activations (a query scaled before or after the product gives another map):
    it is left out, unless somebody asks for it.
    """
    if stabiliser:
        moved = denominator + stabiliser
        return torch.where(denominator == 0, 0.0, numerator / torch.where(moved == 0, stabiliser, moved))
    limits = torch.finfo(denominator.dtype)
    return numerator / denominator.masked_fill(denominator.abs() < limits.tiny / limits.eps, torch.inf)


def bounded(x: Array) -> Array:
    """The numbers, of which those that stand for infinity are small enough to be multiplied.

    An additive mask is -inf, or as negative as numbers can be. Times relevance per unit that would be NaN, or overflow.
    Where a rule multiplies and another one divides by the same number, any large one will do.
    """
    limit = torch.finfo(x.dtype).max ** 0.5
    return x.clamp(-limit, limit)


def zplus(
    relevance: Array, x: Array, weight: Array, forward: Linear, transpose: Linear, stabiliser: float = 0.0
) -> Array:
    """Pass relevance along positive contributions only (z+ rule; Montavon et al. 2017, Chefer et al. 2021, eq. 4)."""
    return _along_sign(relevance, 1, x, weight, forward, transpose, None, stabiliser)


def _along_sign(
    relevance: Array,
    sign: int,
    x: Array,
    weight: Array,
    forward: Linear,
    transpose: Linear,
    bias: Array | None,
    stabiliser: float = 0.0,
) -> Array:
    """Share relevance among the contributions of one sign; (xW + |x||W|) / 2 would lose the digits of small ones."""
    # x+W+ + x-W- are the positive contributions, x+W- + x-W+ the negative ones.
    above = x.clamp(min=0)
    below = x.clamp(max=0)
    for_above = weight.clamp(min=0) if sign > 0 else weight.clamp(max=0)
    for_below = weight - for_above
    total = forward(above, for_above) + forward(below, for_below)
    if bias is not None:
        total = total + sign * (sign * bias).clamp(min=0)
    share = safe_divide(relevance, total, stabiliser)
    return above * transpose(share, for_above) + below * transpose(share, for_below)


def alpha1_beta0(
    relevance: Array, x: Array, weight: Array, forward: Linear, transpose: Linear, stabiliser: float = 0.0
) -> Array:
    """Divide x+W+ and x-W- each by its own sum (alpha-1-beta-0 as in the LRP baseline of Chefer et al. 2021's code)."""
    result = torch.zeros_like(x)
    for part, of_weight in ((x.clamp(min=0), weight.clamp(min=0)), (x.clamp(max=0), weight.clamp(max=0))):
        share = safe_divide(relevance, forward(part, of_weight), stabiliser)
        result = result + part * transpose(share, of_weight)
    return result


def alpha_beta(
    relevance: Array,
    x: Array,
    weight: Array,
    alpha: float,
    beta: float,
    forward: Linear,
    transpose: Linear,
    bias: Array | None = None,
) -> Array:
    """Weigh positive contributions by alpha and negative ones by -beta (Bach et al. 2015, eq. 60).

    A bias that is given is a contribution like any other, of which the share goes nowhere.
    """
    result = torch.zeros_like(x)
    for factor, sign in ((alpha, 1), (-beta, -1)):
        if factor:
            result = result + _along_sign(factor * relevance, sign, x, weight, forward, transpose, bias)
    return result


# (x, y) -> product, and its transposes: (output-shaped, y) -> x-shaped, (output-shaped, x) -> y-shaped.
Product = tuple[Linear, Linear, Linear]


def alpha_beta_of_product(
    relevance: Array, a: Array, b: Array, alpha: float, beta: float, product: Product
) -> tuple[Array, Array]:
    """Share relevance of a product of two activations among its terms a_ik b_kj by their sign, and halve each share.

    Terms are weighed by alpha and -beta as the contributions of a linear layer are. Where there are none of one sign,
    those of the other take all, so that relevance is conserved.
    """
    forward, to_a, to_b = product
    b_of = {1: b.clamp(min=0), -1: b.clamp(max=0)}
    # Terms of a sign are a+b+ and a-b-, or a+b- and a-b+. Where the first factor is an attention there are no a-.
    parts = [(sign, part) for sign, part in ((1, a.clamp(min=0)), (-1, a.clamp(max=0))) if bool(part.any())]
    if not parts:
        return torch.zeros_like(a), torch.zeros_like(b)
    totals = {sign: reduce(torch.add, [forward(part, b_of[sign * of_a]) for of_a, part in parts]) for sign in (1, -1)}
    # What is lost beside the other terms when the model adds them up is no term: the probability of a masked key, such
    # as exp(-100), must not take all relevance of a sum whose other terms have the other sign.
    least = 8 * torch.finfo(a.dtype).eps * (totals[1] - totals[-1])
    exist = {sign: total.abs() > least for sign, total in totals.items()}
    results = [torch.zeros_like(a), torch.zeros_like(b)]
    for factor, sign in ((alpha, 1), (-beta, -1)):
        alone = ~exist[-sign]
        if factor or bool((alone & exist[sign]).any()):
            share = torch.where(alone, relevance, factor * relevance)
            share = safe_divide(share, torch.where(exist[sign], totals[sign], 0.0)) / 2
            for of_a, part in parts:
                factor_of_b = b_of[sign * of_a]
                results[0] = results[0] + part * to_a(share, factor_of_b)
                results[1] = results[1] + factor_of_b * to_b(share, part)
    return results[0], results[1]


def by_size(relevance: Array, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    """Split relevance of a sum by each operand's part of the absolute values, which neither cancel nor blow up.

    This is what Otsuki et al. (ECCV 2024, arXiv 2407.09115) call ratio-based splitting, for skip connections; here it
    serves every sum.
    """
    sizes = [operand.abs() for operand in operands]
    share = safe_divide(relevance, sum(sizes[1:], sizes[0]))
    return tuple(size * share for size in sizes)


def epsilon(relevance: Array, x: Array, weight: Array, y: Array, stabiliser: float, transpose: Linear) -> Array:
    """Pass relevance in proportion to the contributions, signed (epsilon rule; Bach et al. 2015, eq. 58)."""
    return x * transpose(safe_divide(relevance, stabilised(y, stabiliser)), weight)


def stabilised(y: Array, stabiliser: float) -> Array:
    """`y` moved away from 0."""
    # Not `y + where(y < 0, -s, s)`: of two Python numbers torch makes float32, which rounds s.
    return torch.where(y < 0, y - stabiliser, y + stabiliser) if stabiliser else y


def gamma(
    relevance: Array, x: Array, weight: Array, y: Array, gain: float, forward: Linear, transpose: Linear
) -> Array:
    """Favour, by `gain`, the contributions of the output's own sign (Montavon et al. 2019, for signed inputs).

    With P the positive and N the negative contributions, an output y >= 0 is shared by its contributions + gain P, an
    output y < 0 by its contributions + gain N. P = (z + |x||W|) / 2 and N = (z - |x||W|) / 2 with z = xW: as for z+,
    one product forwards and two backwards. The bias takes its share.

    Args:
        relevance: R at the output.
        x: The input of the linear map.
        weight: The weight of the linear map.
        y: The layer's output, with the bias.
        gain: gamma; 0 is the epsilon rule, infinity the z+ rule (where y >= 0).
        forward: The linear map.
        transpose: The transpose of the linear map.
    """
    z = forward(x, weight)
    size = forward(x.abs(), weight.abs())
    bias = y - z
    sign = torch.where(y < 0, -1.0, 1.0).to(y.dtype)
    favoured = (z + sign * size) / 2 + (sign * bias).clamp(min=0) * sign
    share = safe_divide(relevance, y + gain * favoured)
    any_sign = transpose(share, weight)
    same_sign = transpose(sign * share, weight.abs())
    return x * any_sign * (1 + gain / 2) + gain / 2 * x.abs() * same_sign


def zbox(
    relevance: Array,
    x: Array,
    low: Array,
    high: Array,
    weight: Array,
    forward: Linear,
    transpose: Linear,
    stabiliser: float = 0.0,
) -> Array:
    """Pass relevance to an input bounded by [low, high] (z^B rule; Montavon et al. 2017, eq. 15)."""
    positive = weight.clamp(min=0)
    negative = weight.clamp(max=0)
    # xW - lW+ - hW-, as sums of terms that are not negative.
    above_low = x - low
    below_high = x - high
    share = safe_divide(relevance, forward(above_low, positive) + forward(below_high, negative), stabiliser)
    return above_low * transpose(share, positive) + below_high * transpose(share, negative)


def halves(
    relevance: Array,
    z: Array,
    a: Array,
    b: Array,
    transpose_a: Callable[..., Any],
    transpose_b: Callable[..., Any],
    stabiliser: float = 0.0,
) -> tuple[Array, Array]:
    """Halve relevance of a product of two activations (Chefer et al. 2021, eq. 8 and 9, as their code does it)."""
    share = safe_divide(relevance, z, stabiliser)
    return a * transpose_a(share) / 2, b * transpose_b(share) / 2


def proportional(relevance: Array, operands: tuple[Array, ...], stabiliser: float = 0.0) -> tuple[Array, ...]:
    """Split relevance of a sum by each operand's part of it (z rule)."""
    share = safe_divide(relevance, sum(operands[1:], operands[0]), stabiliser)
    return tuple(operand * share for operand in operands)


def rescale(
    relevance: Array, parts: tuple[Array, ...], total: Callable[[Array], Array], stabiliser: float = 0.0
) -> tuple[Array, ...]:
    """Give every operand the absolute share of its sum (Chefer et al. 2021, eq. 10).

    Cancelling terms then cannot blow up.
    """
    sums = [total(part) for part in parts]
    total_relevance = total(relevance)
    absolute = sum((s.abs() for s in sums[1:]), sums[0].abs())
    return tuple(
        part * safe_divide(safe_divide(s.abs(), absolute, stabiliser) * total_relevance, s, stabiliser)
        for part, s in zip(parts, sums, strict=True)
    )


def check_not_negative(name: str, number: float) -> float:
    """Return a number; raise if it is negative, or none at all."""
    if not number >= 0:
        raise ValueError(f"{name} must not be negative, got {number}")
    return number
