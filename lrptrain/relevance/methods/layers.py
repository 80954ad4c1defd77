"""Relevance of the input's numbers, or at a layer of the model in their place, as relevance per token."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.passes.rerun import answers
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.registry import RelevanceMaps
from lrptrain.relevance.tape.nodes import Value, tensors_in
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError, unknown_name

SAME = 1e-3
"""Two runs of a model differ by rounding, as sums come in another order: by no more, relative to the largest number."""
_FEATURES_FIRST = (nn.Conv1d, nn.BatchNorm1d, nn.ConvTranspose1d)


def input_maps(recording: Recording, relevance: Float[Tensor, "batch ..."]) -> RelevanceMaps:
    """Sum relevance over the places and features of every token; see `ExplainedInput` for each kind of input."""
    return RelevanceMaps(recording.explained.scores(relevance), recording.explained.map(relevance))


def gradient_at(explanation: Explanation, layer: str) -> tuple[Float[Tensor, "batch ..."], Float[Tensor, "batch ..."]]:
    """Return what a layer hands on, and the gradient of the explained logits at it, by another run of the model."""
    recording = explanation.recording
    leaf = recording.leaf
    with torch.enable_grad(), _heard(recording.model, layer) as outputs:
        answer = answers(explanation, leaf.clone(), torch.arange(len(leaf), device=leaf.device)).sum()
        states = _first(outputs, layer)
        (gradient,) = torch.autograd.grad(answer, states, create_graph=explanation.create_graph, allow_unused=True)
    if gradient is None:
        raise UnsupportedModelError(f"the logits do not depend on the output of the layer {layer!r}")
    return at_least_float32(states), at_least_float32(gradient)


def output_of(explanation: Explanation, layer: str) -> Value:
    """Return what a layer hands on as a recorded value: of several results the first, of several calls the last."""
    recording = explanation.recording
    leaf = recording.leaf
    with torch.no_grad(), _heard(recording.model, layer) as outputs:
        answers(explanation, leaf.detach().clone(), torch.arange(len(leaf), device=leaf.device))
        states = _first(outputs, layer)
    value = recorded(recording, layer, states)
    if value is None:
        raise UnsupportedModelError(
            f"what the layer {layer!r} hands on is no value of its own (a convolution that is merged with its batch "
            "norm?): name the layer behind it, or take input_x_gradient"
        )
    return value


def recorded(recording: Recording, layer: str, states: Tensor) -> Value | None:
    """Return the recorded value that holds what a layer hands on; None if there is none.

    Others may hold the same numbers, such as a copy that is read on one of several ways. The layer's own value is
    meant; of a layer that computes nothing, what it was given.
    """
    made = [(value, node.path) for node in recording.tape.nodes for value in node.outputs]
    values = [(recording.propagator.root, ""), *made]
    alike = [(value, path) for value, path in values if value.shape == states.shape]
    states = states.detach()
    apart = [float((value.tensor.detach() - states).abs().max()) for value, _ in alike]
    if not apart or not min(apart) <= SAME * float(states.abs().max()):
        return None
    same = [each for each, far in zip(alike, apart, strict=True) if far == min(apart)]
    own = [value for value, path in same if f"{path}.".startswith(f"{layer}.")]
    return own[-1] if own else same[0][0]


@contextmanager
def _heard(model: nn.Module, layer: str) -> Iterator[list[Any]]:
    modules = dict(model.named_modules())
    if layer not in modules or not layer:
        raise ValueError(unknown_name("layer", str(layer), [name for name in modules if name]))
    outputs: list[Any] = []

    def hear(module: nn.Module, inputs: Any, output: Any) -> Any:
        outputs.append(output)
        # What comes next may write into it.
        return output.clone() if isinstance(output, Tensor) else None

    handle = modules[layer].register_forward_hook(hear)
    try:
        yield outputs
    finally:
        handle.remove()


def _first(outputs: list[Any], layer: str) -> Tensor:
    last = outputs[-1] if outputs else None
    named = list(last.values()) if isinstance(last, dict) else last
    states = next((x for x in tensors_in(named) if x.is_floating_point()), None)
    if states is None:
        raise UnsupportedModelError(f"the layer {layer!r} was not called, or returned no numbers")
    return states


def layer_maps(
    recording: Recording, layer: str, value: Value | None, relevance: Float[Tensor, "batch ..."]
) -> RelevanceMaps:
    """Return relevance at a layer, and its sums: of the input's tokens where the layer holds them, else of its own.

    A feature map has a score for each place, states `[batch, tokens, width]` one for each token, anything else one for
    each number. `value` is what the layer hands on, as it is recorded; None if it is not.
    """
    row = None if value is None else _of_tokens(recording, value, relevance)
    if row is not None:
        return RelevanceMaps(row, relevance)
    shape = relevance.shape
    if shape[0] != recording.samples:
        raise UnsupportedMethodError(
            f"the layer {layer!r} hands on {list(shape)}, which does not begin with the {recording.samples} samples "
            "(windows, or time first?): name another layer"
        )
    axis = _features(recording.model.get_submodule(layer), shape)
    scores = relevance if axis is None else relevance.sum(axis)
    own = tuple(scores.shape[1:])
    return RelevanceMaps(scores.reshape(len(scores), math.prod(own)), relevance, own_tokens=own)


def _features(module: nn.Module, shape: torch.Size) -> int | None:
    """The axis that a score is a sum over; None where each number has its own."""
    if len(shape) < 3:
        return None
    if len(shape) == 3:
        with_weights = [x for x in module.modules() if next(x.parameters(recurse=False), None) is not None]
        return 1 if with_weights and isinstance(with_weights[-1], _FEATURES_FIRST) else 2
    # Maps are square more often than not.
    is_last = len(shape) == 4 and shape[1] == shape[2] != shape[3]
    return len(shape) - 1 if is_last else 1


def _of_tokens(recording: Recording, value: Value, relevance: Tensor) -> Float[Tensor, "batch tokens"] | None:
    """Relevance of the states of the input's tokens; None if the layer holds no such states."""
    try:
        if recording.propagator.token_axis(value, recording.length) is None:
            return None
        return recording.layout.content(recording.propagator.per_token(value, relevance, recording.length))
    except (UnsupportedModelError, UnsupportedMethodError):  # no attention over the whole sequence
        return None
