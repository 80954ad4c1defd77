"""Relevance at a layer of a model, in place of its input."""

import math

from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.registry import RelevanceMaps
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError, unknown_name


def output_of(recording: Recording, layer: str) -> Value:
    """Return what a module of the model hands on, of several results or calls the last.

    Args:
        recording: With a tape.
        layer: The name of the module, as `model.named_modules()` has it.

    Raises:
        ValueError: If no module has that name.
        UnsupportedModelError: If the logits do not come from what it computes.
    """
    names = [name for name, _ in recording.model.named_modules() if name]
    if layer not in names:
        raise ValueError(unknown_name("layer", layer, names))
    inside = [node for node in recording.tape.nodes if f"{node.path}.".startswith(f"{layer}.")]
    others = set(recording.tape.nodes).difference(inside)
    read = {recording.output}.union(*(node.inputs for node in others))
    results = [value for node in inside for value in node.outputs if value in read]
    if not results:
        raise UnsupportedModelError(
            f"the logits come from no operation of the layer {layer!r}: it has none of its own, or was not called; "
            "name the module that computes"
        )
    return results[-1]


def layer_maps(recording: Recording, value: Value, relevance: Float[Tensor, "batch ..."]) -> RelevanceMaps:
    """Return relevance at a layer, and its sums: of the input's tokens where the layer holds them, else of its own.

    A feature map `[batch, channels, *places]` has a score for each place, states `[batch, tokens, width]` one for each
    token, anything else one for each number.
    """
    row = _of_tokens(recording, value, relevance)
    if row is not None:
        return RelevanceMaps(row, relevance)
    axes = len(relevance.shape)
    scores = relevance.sum(1) if axes > 3 else relevance.sum(2) if axes == 3 else relevance
    own = tuple(scores.shape[1:])
    return RelevanceMaps(scores.reshape(len(scores), math.prod(own)), relevance, own_tokens=own)


def _of_tokens(recording: Recording, value: Value, relevance: Tensor) -> Float[Tensor, "batch tokens"] | None:
    """Relevance of the states of the input's tokens; None if the layer holds no such states."""
    try:
        if recording.propagator.token_axis(value, recording.length) is None:
            return None
        return recording.layout.content(recording.propagator.per_token(value, relevance, recording.length))
    except (UnsupportedModelError, UnsupportedMethodError):  # no attention over the whole sequence
        return None
