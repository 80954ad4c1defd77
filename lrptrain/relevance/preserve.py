"""Leave a model and the random number generators as they were."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """The module itself, out of `torch.compile` and (Distributed) Data Parallel wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Restore buffers, attributes of modules and the random state, also after an exception.

    The random state is that of Python, NumPy, torch and the model's devices.
    """
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers()) if tensor.device.type != "cpu"}
    kinds = {device.type for device in devices}
    states = random.getstate(), np.random.get_state()
    attributes = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    # The graph of an earlier forward pass may hold the buffers themselves: copies are worked on, not written back.
    with torch.inference_mode(False):
        copies = {id(buffer): buffer.detach().clone() for buffer in model.buffers()}
    for module, _, own_buffers in attributes:
        module._buffers.update({name: copies[id(x)] for name, x in own_buffers.items() if x is not None})
    indices = [device.index for device in devices if device.index is not None]
    try:
        with torch.random.fork_rng(indices, device_type=kinds.pop() if kinds else "cuda"):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        for module, values, own_buffers in attributes:
            _restore(vars(module), values)
            _restore(module._buffers, own_buffers)


def _restore(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Set every entry back to the object that it was, and remove new ones."""
    for name in now.keys() - before.keys():
        del now[name]
    now.update(before)
