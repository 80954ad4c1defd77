"""Which calls of a model have a function with a second derivative of their own."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lrptrain.relevance.tape.double_backward.gelu import gelu
from lrptrain.relevance.tape.double_backward.layer_norm import layer_norm
from lrptrain.relevance.tape.transforms import is_transforming

# In half precision the second derivatives would be rounded in other places than torch's.
_PRECISIONS = (torch.float32, torch.float64)


def twice_differentiable(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any]:
    """Return a function of the same arguments and numbers with a cheap second derivative; or the one that was given.

    What is chosen depends on the call alone, so that a checkpointed block that runs again has the same graph.

    Args:
        name: The name of the operation; see `canonical_name`.
        function: What the model calls.
        args: Its arguments by position.
        kwargs: Its arguments by name.
    """
    if is_exact_gelu(name, args, kwargs):
        return _exact_gelu
    if is_norm_of_features(name, args, kwargs):
        return _layer_norm
    return function


def is_exact_gelu(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is one of GELU without an approximation, of which a graph is wanted."""
    return name == "gelu" and _is_plain(args, kwargs) and _approximates(*args, **kwargs) == "none"


def is_norm_of_features(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is a layer norm over the last axis, with a weight and a bias, of which a graph is wanted."""
    return name == "layer_norm" and _is_plain(args, kwargs) and _is_over_features(*args, **kwargs)


def _is_plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether all tensors are torch's own, in memory in full and of one precision, and a graph is wanted."""
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    are_plain = all(
        type(x) in (Tensor, torch.nn.Parameter) and x.layout is torch.strided and not x.is_nested for x in tensors
    )
    precisions = {x.dtype for x in tensors}
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    return are_plain and wanted and len(precisions) == 1 and precisions <= set(_PRECISIONS) and not is_transforming()


def _approximates(_: Tensor, approximate: str = "none") -> str:
    return approximate


def _exact_gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return gelu(x)


def _is_over_features(
    x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any, **__: Any
) -> bool:
    """Whether a layer norm is over the last axis, with a weight and a bias."""
    has_both = isinstance(weight, Tensor) and isinstance(bias, Tensor)
    return has_both and tuple(normalized_shape) == tuple(x.shape[-1:])


def _layer_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor, bias: Tensor, eps: float = 1e-5, *_: Any, **__: Any
) -> Tensor:
    return layer_norm(x, weight, bias, eps)
