"""The linear layer that makes a model's logits, and what it is given."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.batch import batch_length, model_inputs
from lrptrain.relevance.model.preserve import preserved, unwrap
from lrptrain.relevance.model.process_wide import eager
from lrptrain.relevance.output.outputs import logits_of

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class LastLayer:
    """The linear layer whose output is the model's logits."""

    name: str
    module: nn.Linear


@dataclass(frozen=True)
class _Call:
    """One call of a linear layer."""

    layer: LastLayer
    given: Tensor
    returned: Tensor


def find_last_layer(model: nn.Module, batch: Batch) -> LastLayer:
    """Return the linear layer that makes the logits, by what it returns and not by its name."""
    linear = {name: each for name, each in unwrap(model).named_modules() if isinstance(each, nn.Linear)}
    calls: list[_Call] = []

    def note(name: str, module: nn.Linear, args: Any, kwargs: Any, output: Tensor) -> None:
        calls.append(_Call(LastLayer(name, module), _input_of(args, kwargs), output))

    with ExitStack() as hooks:
        for name, each in linear.items():
            hooks.enter_context(each.register_forward_hook(partial(note, name), with_kwargs=True))
        logits = _logits(model, batch)
    makers = [
        call
        for call in calls
        if call.given.ndim == 2
        and call.returned.numel() == logits.numel()
        and torch.equal(call.returned.reshape(logits.shape), logits)
    ]
    if not makers:
        raise ValueError(
            f"no linear layer of {type(unwrap(model)).__name__} makes its logits by itself (from features [batch, "
            "width]), so that there is no last layer to train anew; guidance during training changes such a model, "
            "too"
        )
    chosen = makers[-1].layer
    if not _is_plain(makers[-1]):
        raise ValueError(
            f"the last layer {chosen.name!r} is no plain linear layer: its weight is computed from other parameters "
            "(as by weight_norm), or its output is more than weight and bias make of what it is given"
        )
    shared = [
        name
        for name, weight in unwrap(model).named_parameters(remove_duplicate=False)
        if weight is chosen.module.weight
    ]
    if len(shared) > 1 or sum(call.layer.module is chosen.module for call in calls) > 1:
        raise ValueError(f"the last layer {chosen.name!r} is used in other places, too, which would change with it")
    return chosen


def read_features(model: nn.Module, layer: LastLayer, batches: Iterable[Batch]) -> Float[np.ndarray, "samples width"]:
    """Return what the last layer is given for each sample, in float64."""
    rows: list[np.ndarray] = []

    def note(_: nn.Module, args: tuple[Tensor, ...], kwargs: Mapping[str, Tensor], output: Tensor) -> None:
        rows.append(_input_of(args, kwargs).double().cpu().numpy())

    with layer.module.register_forward_hook(note, with_kwargs=True):
        for batch in batches:
            _logits(model, batch)
    return np.concatenate(rows)


def _input_of(args: tuple[Tensor, ...], kwargs: Mapping[str, Tensor]) -> Tensor:
    """Return what a linear layer is called with."""
    return args[0] if args else kwargs["input"]


def _is_plain(call: _Call) -> bool:
    """Return whether other numbers in the layer's weight and bias change its output as a linear layer's."""
    layer = call.layer.module
    # A parametrised weight is an attribute, which the next call computes again.
    if "weight" not in dict(layer.named_parameters(recurse=False)):
        return False
    with torch.no_grad():
        expected = nn.functional.linear(call.given, layer.weight, layer.bias)
    # A layer of a user's own may be one of cosines, and take what it is given at length 1.
    return torch.allclose(expected.float(), call.returned.float(), rtol=1e-2, atol=1e-3 * float(expected.abs().max()))


def _logits(model: nn.Module, batch: Batch) -> Tensor:
    """Return the logits as the model makes them, in evaluation mode."""
    inputs = model_inputs(model, batch)
    # Compiled code may pass over hooks that came after it was compiled.
    with eager(), preserved(model), torch.no_grad():
        model.eval()
        output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    logits = logits_of(output)
    if logits is None or logits.ndim not in (1, 2) or len(logits) != batch_length(batch):
        raise ValueError(f"{type(unwrap(model)).__name__} does not return logits [batch, classes] or .logits")
    return logits
