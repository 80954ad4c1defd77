"""What torch knows of `torch.func` and `vmap`, for which it has no public question; and `vmap` as a loop."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._functorch import apis
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._functorch.vmap import _broadcast_to_and_flatten, _process_batched_inputs
from torch.utils._pytree import tree_flatten, tree_unflatten

from lrptrain.relevance.tape.nodes import tensors_in

_functorch = torch._C._functorch
# What of `torch.func` runs now, the innermost; None for nothing.
transformation: Callable[[], Any] = _functorch.peek_interpreter_stack


def is_transforming() -> bool:
    """Whether a function of `torch.func`, or `torch.vmap`, runs now."""
    return transformation() is not None


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor of which such a function sees a sample, or follows the gradient."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def untransformed() -> AbstractContextManager[object]:
    """Compute inside as if no such function ran."""
    return temporarily_clear_interpreter_stack()


@contextmanager
def looping(depends: Callable[[Tensor], bool]) -> Iterator[None]:
    """Run `torch.vmap` as a loop, whose operations a tape can follow, where an argument depends on the explained input.

    Other threads may call it meanwhile: their tensors depend on nothing.
    """
    mapped: Any = apis.vmap_impl

    def looped(
        func: Callable[..., Any],
        in_dims: Any,
        out_dims: Any,
        randomness: str,
        chunk_size: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if is_transforming() or not any(depends(x) for x in tensors_in((args, kwargs))):
            return mapped(func, in_dims, out_dims, randomness, chunk_size, *args, **kwargs)
        size, axes, tensors, spec = _process_batched_inputs(in_dims, args, func)
        results = []
        for i in range(size):
            of_one = [x if axis is None else x.select(axis, i) for x, axis in zip(tensors, axes, strict=True)]
            results.append(tree_flatten(func(*tree_unflatten(of_one, spec), **kwargs)))
        places = _broadcast_to_and_flatten(out_dims, results[0][1]) or []
        parts = zip(*(leaves for leaves, _ in results), strict=True)
        stacked = [
            part[0] if axis is None else torch.stack(part, axis) for part, axis in zip(parts, places, strict=True)
        ]
        return tree_unflatten(stacked, results[0][1])

    apis.vmap_impl = looped
    try:
        yield
    finally:
        apis.vmap_impl = mapped
