"""Grad-CAM on the tokens that the last block's attention reads."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lrptrain.relevance.advice import REACH_INPUT, other_methods
from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.registry import RelevanceMaps, method
from lrptrain.relevance.tape.nodes import Node, Value, behind
from lrptrain.relevance.tape.regions import Graph
from lrptrain.relevance.tokens.attentions import queries_of
from lrptrain.relevance.types import UnsupportedMethodError

_PROJECTIONS = ("linear", "addmm", "matmul", "bmm", "einsum", "conv1d")


@method(class_specific=True, signed=False, source="Selvaraju et al. 2017")
def gradcam(explanation: Explanation) -> RelevanceMaps:
    """Grad-CAM (Selvaraju et al. 2017) on the tokens that enter the last block's attention, behind its first norm.

    relu(sum_c w_c x_c), w_c the mean gradient over the content tokens. Not on the last token states: a class-token
    model takes no patch there, so that the map would be 0. Where the sum is negative everywhere, the map is 0.
    """
    recording = explanation.recording
    value = attention_input(recording)
    states, gradient = (_content(recording, value, x) for x in (value.tensor, *explanation.gradient([value])))
    content = recording.content_mask(states.shape[1]).to(states.dtype)[..., None]
    weights = (gradient * content).sum(1, keepdim=True) / content.sum(1, keepdim=True)
    return RelevanceMaps((weights * states).sum(-1).clamp(min=0))


def attention_input(recording: Recording) -> Value:
    """The token states `[batch, tokens, width]` that the last block projects to its queries and keys.

    Where another stream of as many tokens attends to the explained one, those that it reads last.
    """
    if recording.tape.text.has_decoder:
        raise UnsupportedMethodError(
            "gradcam does not know which of the two streams, the encoder's or the decoder's, to take; "
            "generic_attention and attnlrp serve both"
        )
    stream = own_states(recording)
    frontier: list[Value] = [recording.blocks[-1]]
    seen = set(frontier)
    while frontier:
        node = recording.propagator.producer(frontier.pop(0))
        for value in node.inputs if node is not None else ():
            if value in stream and _projects_tokens(recording, node, value):
                return value
            if value not in seen:
                seen.add(value)
                frontier.append(value)
    raise UnsupportedMethodError(
        "gradcam finds no token states that the last block's attention reads (windows, or no linear projection to "
        f"queries?); {other_methods(*REACH_INPUT)} reach the input without them"
    )


def own_states(recording: Recording) -> set[Value]:
    """The values that come from the explained input by other ways than another stream's attention to it.

    A text's tokens that attend to an image stay tokens of the text: their queries are none of the image's.
    """
    graph = Graph(recording.tape)
    states = {recording.propagator.root}
    maps = {attention.product: attention for attention in recording.attentions}

    def read(node: Node) -> Sequence[Any]:
        queries = queries_of(graph, maps[node]) if node in maps else None
        return node.inputs if queries is None else (queries,)

    return states.union(*(node.outputs for node, _ in behind(recording.tape.nodes, states, read)))


def _projects_tokens(recording: Recording, node: Node | None, value: Value) -> bool:
    if node is None or node.name not in _PROJECTIONS or len(node.inputs) > 1:
        return False
    return recording.propagator.token_axis(value, recording.length) is not None


def _content(recording: Recording, value: Value, x: Tensor) -> Tensor:
    """The content tokens of states, `[batch, tokens, width]`."""
    tokens = recording.propagator.token_axis(value, recording.length)
    states = at_least_float32(x) if tokens == 1 else at_least_float32(x).transpose(0, 1)
    if states.shape[0] != recording.samples:
        states = states.expand(recording.samples, -1, -1)
    return torch.movedim(recording.layout.content(torch.movedim(states, 1, -1)), -1, 1)
