"""What torch knows of `torch.func` and `vmap`, for which it has no public question."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

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
