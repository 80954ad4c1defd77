"""What torch knows of `torch.func` and `vmap`, for which it has no public question."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

_functorch = torch._C._functorch


def is_transforming() -> bool:
    """Whether a function of `torch.func`, or `torch.vmap`, runs now."""
    return _functorch.peek_interpreter_stack() is not None


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor of which such a function sees a sample, or follows the gradient."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def untransformed() -> AbstractContextManager[object]:
    """Compute inside as if no such function ran."""
    return temporarily_clear_interpreter_stack()
