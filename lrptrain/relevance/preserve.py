"""Leave a model and the random number generators as they were."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """The module itself, out of `torch.compile` and (Fully) (Distributed) Data Parallel wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Restore buffers and the random state of Python, NumPy, torch and the model's devices, also after an exception."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers()) if tensor.device.type != "cpu"}
    kinds = {device.type for device in devices}
    states = random.getstate(), np.random.get_state()
    buffers = [(module, name, buffer, buffer.detach().clone()) for module, name, buffer in _buffers(model)]
    indices = [device.index for device in devices if device.index is not None]
    try:
        with torch.random.fork_rng(indices, device_type=kinds.pop() if kinds else "cuda"):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        for module, name, buffer, before in buffers:
            if not torch.equal(buffer, before):
                with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                    buffer.copy_(before)
            module._buffers[name] = buffer


def _buffers(model: nn.Module) -> list[tuple[nn.Module, str, torch.Tensor]]:
    found = [(module, name, buffer) for module in model.modules() for name, buffer in module._buffers.items()]
    return [(module, name, buffer) for module, name, buffer in found if buffer is not None]
