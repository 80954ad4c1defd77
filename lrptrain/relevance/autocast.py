"""The precision in which the caller runs the model, for methods that run it again."""

from typing import NamedTuple

import torch
from torch import Tensor


class AutocastState(NamedTuple):
    """Arguments of `torch.autocast`, per kind of device."""

    devices: tuple[tuple[str, torch.dtype, bool], ...]


def autocast_state() -> AutocastState:
    """As it is now, on the CPU and on the accelerator at hand."""
    kinds = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    return AutocastState(
        tuple((kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in kinds)
    )


def seed_scale(logits: Tensor) -> float:
    """What to multiply a number by whose gradient is taken, and the gradient to divide by, if a loss is made of it.

    In float16 the gradient would lose its smallest numbers, and the loss's gradient at it, which is as large as it is
    small, would overflow.
    """
    return 64.0 if logits.dtype == torch.float16 else 1.0
