"""Calls with the same result and another gradient: that of AttnLRP's rules, per unit of activation.

With `g = R / x` a rule of Achtibat et al. 2024 is what stands in the backward passes below (Arras et al. 2025).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

Swap = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Carries out a call, given the function and its arguments, with the gradient of a rule."""


class _Slope(Function):
    """An activation: relevance passes as it is, so that the gradient is y / x; 0 where x is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, make: Callable[[], Tensor]) -> Tensor:
        y = make()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        x, y = ctx.saved_tensors
        return gradient * (y / x.masked_fill(x == 0, torch.inf)), None


class _LayerNorm(Function):
    """A layer norm whose deviation is held fixed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...], weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, _, factor = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(factor, weight)
        ctx.axes = tuple(range(-len(shape), 0))
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        factor, weight = ctx.saved_tensors
        scaled = gradient if weight is None else gradient * weight
        centred = (scaled - scaled.mean(ctx.axes, keepdim=True)) * factor
        return centred.to(gradient.dtype), None, None, None, None


class _RMSNorm(Function):
    """A norm by the root of the mean square, which is held fixed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...], weight: Tensor, eps: float | None) -> Tensor:
        axes = tuple(range(-len(shape), 0))
        least = torch.finfo(x.dtype).eps if eps is None else eps
        ctx.save_for_backward((x.square().mean(axes, keepdim=True) + least).rsqrt(), weight)
        return F.rms_norm(x, shape, weight, eps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        factor, weight = ctx.saved_tensors
        return (gradient if weight is None else gradient * weight) * factor, None, None, None


class _Held(Function):
    """A result that is held fixed, though it depends on the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, make: Callable[[], Tensor]) -> Tensor:
        return make()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return torch.zeros_like(gradient), None


def with_slope(source: Tensor, result: Tensor) -> Tensor:
    """The result of an activation that is written out in several calls, with the gradient of one."""
    found: Tensor = _Slope.apply(source, lambda: result)
    return found


def slope(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """An activation of one argument."""
    x, *rest = args
    found: Tensor = _Slope.apply(x, lambda: func(x, *rest, **kwargs))
    return found


def layer_norm(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """`F.layer_norm`."""

    def named(
        input: Tensor,
        normalized_shape: Any,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
        cudnn_enable: bool = True,
    ) -> tuple[Any, ...]:
        return input, tuple(normalized_shape), weight, bias, eps

    found: Tensor = _LayerNorm.apply(*named(*args, **kwargs))
    return found


def rms_norm(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """`F.rms_norm`."""

    def named(
        input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
    ) -> tuple[Any, ...]:
        return input, tuple(normalized_shape), weight, eps

    found: Tensor = _RMSNorm.apply(*named(*args, **kwargs))
    return found


def halved(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """A product of two activations: each gets half of the relevance."""
    return _scaled(func(*args, **kwargs), 0.5)


def attention(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Fused attention: two products, one within the other, and a softmax that is linearised."""
    query, key, value, *rest = args
    mask = rest.pop(0) if rest else kwargs.get("attn_mask")
    kwargs = {name: x for name, x in kwargs.items() if name != "attn_mask"}
    is_masked = isinstance(mask, Tensor) and mask.requires_grad
    asks, answers = query.requires_grad or key.requires_grad, query.requires_grad and key.requires_grad
    of_value = 0.5 if value.requires_grad and (asks or is_masked) else 1.0
    of_scores = of_value * (0.5 if answers else 1.0)
    scaled = _scaled(query, of_scores), _scaled(key, of_scores), _scaled(value, of_value)
    found: Tensor = func(*scaled, _scaled(mask, of_value) if isinstance(mask, Tensor) else mask, *rest, **kwargs)
    return found


def held(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """A softmax whose result is held fixed."""
    (x,) = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
    found: Tensor = _Held.apply(x, lambda: func(*args, **kwargs))
    return found


def of_values(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Fused attention whose map is held fixed: queries, keys and a mask."""
    args = tuple([x if place == 2 else _constant(x) for place, x in enumerate(args)])
    found: Tensor = func(*args, **{name: x if name == "value" else _constant(x) for name, x in kwargs.items()})
    return found


def _constant(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x


def _scaled(x: Tensor, factor: float) -> Tensor:
    """A tensor with its gradient times a factor: x + factor (x - x) is x, in one kernel each way."""
    return torch.lerp(x.detach(), x, factor) if x.requires_grad and factor != 1 else x
