"""Models and inputs on a device, and what is compared there."""

from collections.abc import Iterable
from typing import Any

import torch
from model_zoo import KINDS
from torch import Tensor, nn


def in_small(cases: Iterable[str]) -> list[str]:
    """All cases on a GPU; two where the CPU would be compared with itself, so that the comparison itself is run."""
    return list(cases)[: None if torch.cuda.is_available() else 2]


def moved(inputs: Any, device: torch.device | str) -> Any:
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    return {name: x.to(device) for name, x in inputs.items()}


def both(kind: str, device: torch.device, dtype: torch.dtype = torch.float32) -> list[tuple[nn.Module, Any]]:
    """The same model and inputs on the CPU and on the device."""
    inputs = KINDS[kind].inputs(dtype=dtype)
    return [(KINDS[kind].build(True).to(dtype).to(place), moved(inputs, place)) for place in ("cpu", device)]


def distance(one: Tensor, other: Tensor) -> float:
    """Relative L2, over all samples."""
    one, other = one.detach().double().cpu(), other.detach().double().cpu()
    return float((one - other).norm() / other.norm().clamp(min=1e-30))
