"""GELU with a second derivative in one pass.

With the density phi and the distribution function Phi of a standard normal variable, y = x Phi(x) has

    y' = Phi(x) + x phi(x),    y'' = (2 - x^2) phi(x),

since phi'(x) = -x phi(x). torch's own second derivative is a dozen operations, each over fresh memory.

Relevance per unit of activation is multiplied by y / x = Phi(x) (see `signed_composites`), of which the derivative is
phi(x).
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

# As many entries at a time fit into a core's own cache, with what is computed beside them.
_ENTRIES_AT_A_TIME = 1 << 16


def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return `F.gelu(x)`, without an approximation by tanh."""
    result: Tensor = _Gelu.apply(x)
    return result


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _GeluGradient.apply(gradient, *ctx.saved_tensors)


class _GeluGradient(torch.autograd.Function):
    """The gradient at x, of that at y: g y'(x)."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(gradient, x)
        at_input: Tensor = torch.ops.aten.gelu_backward(gradient, x)
        return at_input

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> Any:
        gradient, x = ctx.saved_tensors
        needs_gradient, needs_x = ctx.needs_input_grad
        of_x = None
        if needs_x and torch.is_grad_enabled():  # a third derivative is asked for
            of_x = tangent * gradient * (2 - x**2) * torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        elif needs_x:
            of_x = _of_x(tangent, gradient, x)
        return torch.ops.aten.gelu_backward(tangent, x) if needs_gradient else None, of_x


def by_slope(gradient: Float[Tensor, "*shape"], x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return `gradient * gelu(x) / x`; 0 where x is 0, or so small that a quotient could overflow."""
    result: Tensor = _BySlope.apply(gradient, x)
    return result


class _BySlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(gradient, x)
        return _slope(x).mul_(gradient)

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> Any:
        gradient, x = ctx.saved_tensors
        curvature = torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * _is_divisor(x)
        if torch.is_grad_enabled():  # a third derivative is asked for
            slope = (1 + torch.erf(x / math.sqrt(2))) / 2 * _is_divisor(x)
            return tangent * slope, tangent * gradient * curvature
        return _slope(x).mul_(tangent), curvature.mul_(gradient).mul_(tangent)


def _slope(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return torch.mul(x, 1 / math.sqrt(2)).erf_().add_(1).mul_(0.5).mul_(_is_divisor(x))


def _is_divisor(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """1 where a number can be divided by, and 0 elsewhere; see `rules.safe_divide`."""
    limits = torch.finfo(x.dtype)
    size = x.detach().abs()
    return torch.ge(size, limits.tiny / limits.eps, out=size)


def _of_x(
    tangent: Float[Tensor, "*shape"], gradient: Float[Tensor, "*shape"], x: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """Return `tangent * gradient * (2 - x^2) phi(x)`, some entries at a time."""
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    tangent, gradient, x = (tensor.reshape(-1) for tensor in (tangent, gradient, x))
    length = torch.get_num_threads() * _ENTRIES_AT_A_TIME
    density = 1 / math.sqrt(2 * math.pi)  # of the standard normal variable, at 0
    for start in range(0, len(x), length):
        part = slice(start, start + length)
        squares = x[part] * x[part]
        curvature = torch.mul(squares, -0.5, out=result.view(-1)[part]).exp_()
        curvature.mul_(squares.mul_(-density).add_(2 * density))
        curvature.mul_(gradient[part]).mul_(tangent[part])
    return result
