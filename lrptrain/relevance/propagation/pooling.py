"""Rules for pooling: averages share relevance among their positive terms, a maximum gives it to the winner."""

from functools import partial

from torch import Tensor

from lrptrain.relevance.propagation import rules
from lrptrain.relevance.propagation.linear_maps import OutputRelevance, vjp
from lrptrain.relevance.propagation.propagator import InputRelevance, Propagator, Rule, only_input
from lrptrain.relevance.tape.functions import AVERAGES, MAXIMA
from lrptrain.relevance.tape.nodes import Node, tensors_in


def averaged(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Average pooling: a linear map with positive weights (z+ rule)."""
    (part,) = relevance
    assert part is not None
    propagator.axis(node.outputs[0])
    for value in only_input(node):
        positive = value.tensor.to(part.dtype).clamp(min=0)
        share = rules.safe_divide(part, _repeat(node, positive)[0])
        (back,) = vjp(partial(_repeat, node), [positive], [share])
        assert back is not None
        yield value, positive * back


def to_the_winner(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A maximum copies one of its terms, which gets all of the relevance; equal terms share it."""
    part = relevance[0]
    assert part is not None
    propagator.axis(node.outputs[0])
    found = vjp(partial(_repeat, node), [value.tensor.to(part.dtype) for value in node.inputs], [part])
    return [(value, back) for value, back in zip(node.inputs, found, strict=True) if back is not None]


def _repeat(node: Node, *inputs: Tensor) -> tuple[Tensor, ...]:
    """The node's call on other inputs, without the indices of a maximum."""
    place = dict(zip(node.inputs, inputs, strict=True))
    return tuple(x for x in tensors_in(node.call(place.__getitem__)) if x.is_floating_point())


POOLING: dict[str, Rule] = {**dict.fromkeys(AVERAGES, averaged), **dict.fromkeys(MAXIMA, to_the_winner)}
