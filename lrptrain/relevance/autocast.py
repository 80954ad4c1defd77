"""The precision in which the caller runs the model, for methods that run it again."""

from typing import NamedTuple

import torch


class AutocastState(NamedTuple):
    """Arguments of `torch.autocast`, per kind of device."""

    devices: tuple[tuple[str, torch.dtype, bool], ...]


def autocast_state() -> AutocastState:
    """As it is now, on the CPU and on the accelerator at hand."""
    kinds = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    return AutocastState(
        tuple((kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in kinds)
    )
