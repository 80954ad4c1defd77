"""Normalisations as the linear maps that they are once their denominators are held fixed."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.tape.functions import NORMALISATIONS
from lrptrain.relevance.tape.nodes import Node, Value, unsupported

Array = Float[Tensor, "..."]


def frozen(node: Node) -> Callable[[Array], Array]:
    """The normalisation with its denominators as the recorded input made them, and without its bias.

    That is gamma * (x - mean(x)) / sigma_0 for layer and group norms, gamma * x / rms_0 for RMSNorm, and
    gamma * x / sigma for batch norm (in evaluation): a linear map of x, with the node's output at the recorded input,
    less the bias (batch norm: less what is constant in it). It computes in the precision of what it is given; the
    denominators keep their graph, where the recording has one.
    """
    written_out: Callable[[Array], Array] | None = getattr(node.function, "frozen", None)
    if written_out is not None:
        return written_out
    if node.name not in NORMALISATIONS:
        raise unsupported(node.name, node.path, "is no normalisation, so that it has no denominator to hold fixed")
    return {"layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm, "batch_norm": _batch_norm}[
        node.name
    ](node)


def _axes(node: Node) -> tuple[int, ...]:
    """The axes that a layer norm or an RMSNorm runs over, counted from the last one."""
    return tuple(range(-len(tuple(node.argument(1, "normalized_shape"))), 0))


def _recorded(node: Node) -> Tensor:
    value = node.argument(0, "input")
    assert isinstance(value, Value)
    return value.tensor


def _constant(node: Node, position: int, name: str) -> Tensor | None:
    """A weight or a running statistic."""
    constant: Tensor | Value | None = node.argument(position, name)
    if isinstance(constant, Value):
        raise unsupported(node.name, node.path, f"has a {name} that depends on the input")
    return constant


def _scaled(x: Array, weight: Tensor | None) -> Array:
    return x if weight is None else x * weight.to(x.dtype)


def _layer_norm(node: Node) -> Callable[[Array], Array]:
    axes = _axes(node)
    weight = _constant(node, 2, "weight")
    eps = node.argument(4, "eps", 1e-5)
    recorded = _recorded(node)
    # The kernel of the norm itself gives one over sigma in a tenth of the time of `var`, but has no graph for it.
    with_graph = torch.is_grad_enabled()

    def apply(x: Array) -> Array:
        if with_graph:
            inverse = (recorded.to(x.dtype).var(axes, correction=0, keepdim=True) + eps).rsqrt()
        else:
            inverse = _inverse_deviation(recorded.detach().to(x.dtype), axes, eps)
        return _scaled((x - x.mean(axes, keepdim=True)) * inverse, weight)

    return apply


def _inverse_deviation(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """One over the standard deviation along the last axes, which are kept as axes of length 1."""
    shape = [x.shape[axis] for axis in axes]
    return torch.native_layer_norm(x, shape, None, None, eps)[2].to(x.dtype)


def _rms_norm(node: Node) -> Callable[[Array], Array]:
    axes = _axes(node)
    weight = _constant(node, 2, "weight")
    eps = node.argument(3, "eps")
    recorded = _recorded(node)
    # Without an epsilon, that of the precision of the recording.
    least = torch.finfo(recorded.dtype).eps if eps is None else eps

    def apply(x: Array) -> Array:
        return _scaled(x * (recorded.to(x.dtype).square().mean(axes, keepdim=True) + least).rsqrt(), weight)

    return apply


def _group_norm(node: Node) -> Callable[[Array], Array]:
    groups = node.argument(1, "num_groups")
    weight = _constant(node, 2, "weight")
    eps = node.argument(4, "eps", 1e-5)
    recorded = _recorded(node)
    grouped = (recorded.shape[0], groups, math.prod(recorded.shape[1:]) // groups)

    def apply(x: Array) -> Array:
        variance = recorded.to(x.dtype).reshape(grouped).var(-1, correction=0, keepdim=True)
        y = x.reshape(grouped)
        y = (y - y.mean(-1, keepdim=True)) * (variance + eps).rsqrt()
        return _scaled(y.reshape(x.shape), None if weight is None else _per_channel(weight, x))

    return apply


def _batch_norm(node: Node) -> Callable[[Array], Array]:
    weight = _constant(node, 3, "weight")
    eps = node.argument(7, "eps", 1e-5)
    variance = _constant(node, 2, "running_var")
    if variance is None or node.argument(5, "training", False):
        raise unsupported(node.name, node.path, "normalises over the samples of the batch; call model.eval()")
    factor = (variance + eps).rsqrt() if weight is None else weight * (variance + eps).rsqrt()
    return lambda x: _scaled(x, _per_channel(factor, x))


def _per_channel(weight: Tensor, x: Tensor) -> Tensor:
    return weight.view(-1, *[1] * (x.ndim - 2))
