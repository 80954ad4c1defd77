"""Layer norm over the last axis with a second derivative in few passes over memory.

With n = (x - mean(x)) s, s = 1 / sqrt(var(x) + eps), and y = n w + b, a gradient g at y gives, with u = g w and means
over the features,

    dx = s U,    U = u - mean(u) - n mean(u n),    dw = sum over tokens of g n,    db = sum over tokens of g.

A loss on dx that has the gradient a at it has, with A = a - mean(a) - n mean(a n),

    s A at u, so s A w at g, and the sum over tokens of s A g at w;
    -s^2 (n mean(a U) + A mean(u n) + U mean(a n)) at x.

torch's own second derivative is some thirty operations, each over fresh memory.

With s held fixed, as in AttnLRP, the gradient is h = s V, V = u - mean(u), which still depends on x by s: a loss on h
that has the gradient a at it has, with B = a - mean(a),

    s B w at g, and the sum over tokens of s B g at w;   -s^2 n mean(a V) at x.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

# As many entries at a time fit into a core's own cache, with what is computed beside them.
_ENTRIES_AT_A_TIME = 1 << 15


def layer_norm(
    x: Float[Tensor, "*tokens features"],
    weight: Float[Tensor, " features"],
    bias: Float[Tensor, " features"],
    eps: float,
) -> Float[Tensor, "*tokens features"]:
    """Return `F.layer_norm` over the last axis."""
    result: Tensor = _LayerNorm.apply(x, weight, bias, eps)
    return result


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        normalised, mean, inverse_spread = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
        ctx.save_for_backward(x, weight, bias, mean, inverse_spread)
        ctx.eps = eps
        return normalised

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return *_LayerNormGradient.apply(gradient, *ctx.saved_tensors, ctx.eps), None


class _LayerNormGradient(torch.autograd.Function):
    """The gradients at x, weight and bias, of that at the output."""

    @staticmethod
    def forward(
        ctx: Any,
        gradient: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        inverse_spread: Tensor,
        eps: float,
    ) -> Any:
        ctx.save_for_backward(gradient, x, weight, bias, mean, inverse_spread)
        ctx.eps = eps
        ctx.set_materialize_grads(False)
        return torch.ops.aten.native_layer_norm_backward(
            gradient, x, weight.shape, mean, inverse_spread, weight, bias, [True, True, True]
        )

    @staticmethod
    def backward(ctx: Any, of_x: Tensor | None, of_weight: Tensor | None, of_bias: Tensor | None) -> Any:
        gradient, x, weight, bias, mean, inverse_spread = ctx.saved_tensors
        if torch.is_grad_enabled() or of_x is None or of_weight is not None or of_bias is not None:
            tangents = (of_x, of_weight, of_bias)
            return *_by_torch((gradient, x, weight), bias, tangents, ctx.eps), None, None, None, None
        return *_second_derivative(of_x, gradient, x, weight, mean, inverse_spread), None, None, None, None


def frozen_gradient(
    gradient: Float[Tensor, "*tokens features"],
    x: Float[Tensor, "*tokens features"],
    weight: Float[Tensor, " features"],
    eps: float,
) -> Float[Tensor, "*tokens features"]:
    """Return the gradient at x of a layer norm of which the denominator is held fixed."""
    result: Tensor = _FrozenGradient.apply(gradient, x, weight, eps)
    return result


class _FrozenGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        _, mean, inverse_spread = torch.native_layer_norm(x, weight.shape, None, None, eps)
        ctx.save_for_backward(gradient, x, weight, mean, inverse_spread)
        ctx.eps = eps
        scaled = gradient * weight
        return scaled.sub_(scaled.mean(-1, keepdim=True)).mul_(inverse_spread)

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> Any:
        gradient, x, weight, mean, inverse_spread = ctx.saved_tensors
        if torch.is_grad_enabled():  # a third derivative is asked for
            mean = x.mean(-1, keepdim=True)
            inverse_spread = (x.var(-1, correction=0, keepdim=True) + ctx.eps).rsqrt()
        scaled = gradient * weight
        centred = scaled - scaled.mean(-1, keepdim=True)
        of_spread = (tangent * centred).mean(-1, keepdim=True)
        of_x = (mean - x) * (inverse_spread**3 * of_spread)
        of_scaled = (tangent - tangent.mean(-1, keepdim=True)) * inverse_spread
        return of_scaled * weight, of_x, (of_scaled * gradient).flatten(0, -2).sum(0), None


def _second_derivative(
    tangent: Float[Tensor, "*tokens features"],
    gradient: Float[Tensor, "*tokens features"],
    x: Float[Tensor, "*tokens features"],
    weight: Float[Tensor, " features"],
    mean: Float[Tensor, "*tokens 1"],
    inverse_spread: Float[Tensor, "*tokens 1"],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients at the first gradient, x and weight, some tokens at a time; see the module's docstring."""
    features = weight.shape[0]
    of_gradient, of_x = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
    of_weight = torch.zeros_like(weight)
    rows = [tensor.reshape(-1, features) for tensor in (tangent, gradient, x)]
    means = mean.reshape(-1, 1)
    spreads = inverse_spread.reshape(-1, 1)
    height = max(1, torch.get_num_threads() * _ENTRIES_AT_A_TIME // features)
    for start in range(0, len(means), height):
        part = slice(start, start + height)
        a, g, entries = (tensor[part] for tensor in rows)
        s = spreads[part]
        n = (entries - means[part]).mul_(s)
        u = g * weight
        of_u = (u * n).mean(-1, keepdim=True)
        of_a = (a * n).mean(-1, keepdim=True)
        centred_a = (a - a.mean(-1, keepdim=True)).addcmul_(n, of_a, value=-1)
        centred_u = u.sub_(u.mean(-1, keepdim=True)).addcmul_(n, of_u, value=-1)
        both = (a * centred_u).mean(-1, keepdim=True)
        at_x = torch.mul(n, both, out=of_x.view(-1, features)[part])
        at_x.addcmul_(centred_a, of_u).addcmul_(centred_u, of_a).mul_(s.square().neg())
        centred_a.mul_(s)
        torch.mul(centred_a, weight, out=of_gradient.view(-1, features)[part])
        of_weight += centred_a.mul_(g).sum(0)
    return of_gradient, of_x, of_weight


def _by_torch(
    tensors: tuple[Tensor, Tensor, Tensor], bias: Tensor, tangents: tuple[Tensor | None, ...], eps: float
) -> tuple[Tensor | None, ...]:
    """What `_second_derivative` returns, of all that has a tangent, by torch's own derivatives and with their graph."""
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views of their own: one of the tensors may have been computed from another, which is not counted in here.
        # Without a graph they are leaves.
        gradient, x, weight = (
            tensor.view_as(tensor) if with_graph and tensor.requires_grad else tensor.detach().requires_grad_()
            for tensor in tensors
        )
        shift = bias.detach().requires_grad_()
        first = torch.autograd.grad(
            F.layer_norm(x, weight.shape, weight, shift, eps), (x, weight, shift), gradient, create_graph=True
        )
        pairs = [(x, tangent) for x, tangent in zip(first, tangents, strict=True) if tangent is not None]
        numbers = [(x * tangent).sum() for x, tangent in pairs if x.requires_grad]
        if not numbers:
            return None, None, None
        total = torch.stack(numbers).sum()
        return torch.autograd.grad(total, (gradient, x, weight), create_graph=with_graph, allow_unused=True)
