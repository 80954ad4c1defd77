"""Leave a model and the random number generators as they were."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from lrptrain.relevance.fast.walk import own_attributes_of, weights_of
from lrptrain.relevance.model.contents import Contents, Lost, Parameters, same_entries
from lrptrain.relevance.model.process_wide import in_turn
from lrptrain.relevance.model.recordable import check_transformations
from lrptrain.relevance.notices import warn_once
from lrptrain.relevance.sharding.shards import is_sharded
from lrptrain.relevance.sharding.whole_weights import whole_weights


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
def preserved(model: nn.Module, parameters: bool = True) -> Iterator[None]:
    """Restore what a model's forward may change, and the random state, also after an exception.

    That is buffers, attributes of modules and what these lead to, attributes of the user's classes, and parameters; see
    `contents`. What cannot be put back is named once. The random state is that of Python, NumPy, torch and the model's
    devices. Threads take turns. Sharded weights are read whole inside, for which all processes must come here; see
    `whole_weights`.
    """
    with preserved_under_strategy(model, parameters), whole_weights(model):
        yield


@contextmanager
def preserved_under_strategy(model: nn.Module, parameters: bool = True) -> Iterator[None]:
    """The same, but what runs the model inside runs it as its strategy does: sharded weights are left to that."""
    check_transformations()  # whose tensors have no memory to be put back
    with in_turn(), _random_state(model), _attributes(model, parameters and not is_sharded(model)):
        yield


@contextmanager
def _random_state(model: nn.Module) -> Iterator[None]:
    devices = {device for device in {weight.device for weight in weights_of(model)} if device.type != "cpu"}
    kinds = {device.type for device in devices}
    states = random.getstate(), np.random.get_state()
    indices = [device.index for device in devices if device.index is not None]
    try:
        with torch.random.fork_rng(indices, device_type=kinds.pop() if kinds else "cuda"):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


class ModelState:
    """What a model holds when an explanation begins: each of its runs begins with it, and it is put back at the end."""

    def __init__(self, model: nn.Module, with_parameters: bool = True) -> None:
        # TorchScript keeps its state where Python does not reach.
        modules = [each for each in own_attributes_of(model) if not isinstance(each[1], torch.jit.ScriptModule)]
        self.model = model
        self._attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for _, module, _ in modules:
            # All but a forward, which who listens to a model's calls puts there and takes away: see `interception`.
            now = vars(module)
            before = now.copy()
            before.pop("forward", None)
            self._attributes.append((now, before))
        self._contents = Contents(modules, weights_of(model))
        self._parameters = Parameters(model) if with_parameters else None
        self._buffers = [(module._buffers, dict(module._buffers)) for _, module, _ in modules]
        self._copy_buffers()

    def _copy_buffers(self) -> None:
        # The graph of an earlier forward pass may hold the buffers themselves: copies are worked on, not written back.
        with torch.inference_mode(False):
            copies = {id(x): x.detach().clone() for _, own in self._buffers for x in own.values() if x is not None}
        for now, own in self._buffers:
            if own:
                now.update({name: copies[id(x)] for name, x in own.items() if x is not None})

    def restore(self) -> list[Lost]:
        """Put back what has changed, and return what could not be."""
        for attributes in self._attributes:
            _restore(*attributes)
        for now, own in self._buffers:
            if now or own:
                _restore(now, own)
        return self._contents.restore() + ([] if self._parameters is None else self._parameters.restore())

    def begin(self) -> list[Lost]:
        """Put back what has changed, for another run, and return what could not be."""
        lost = self.restore()
        self._copy_buffers()
        return lost


# The states of the models that are explained now, the innermost last. Explanations take turns.
_open: list[ModelState] = []


def begin_anew(model: nn.Module) -> list[Lost]:
    """Let the next run of a model begin as the first one did; return what an earlier run changed for good.

    Nothing is done outside of `preserved`, nor to a sharded model, of which the state is its strategy's.
    """
    if not _open or is_sharded(model):
        return []
    state = next((each for each in reversed(_open) if each.model is model), None)
    if state is not None:
        return state.begin()
    _open.append(ModelState(model))  # a copy, made for one map, that is to be run several times
    return []


@contextmanager
def _attributes(model: nn.Module, with_parameters: bool) -> Iterator[None]:
    count = len(_open)
    state = ModelState(model, with_parameters)
    _open.append(state)
    try:
        yield
    finally:
        del _open[count:]
        for each in state.restore():
            warn_once(model, ("written", each.name), str(each))


def _restore(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Set every entry back to the object that it was, and remove new ones."""
    if not same_entries(now, before):
        for name in now.keys() - before.keys() - {"forward"}:
            del now[name]
        now.update(before)
