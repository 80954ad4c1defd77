"""What torch knows of `torch.func` and `vmap`, for which it has no public question."""

import torch
from torch import Tensor

_functorch = torch._C._functorch


def is_transforming() -> bool:
    """Whether a function of `torch.func`, or `torch.vmap`, runs now."""
    return _functorch.peek_interpreter_stack() is not None


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor of which such a function sees a sample, or follows the gradient."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor
