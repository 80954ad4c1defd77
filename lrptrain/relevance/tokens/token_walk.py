"""Walks of token origins along a tape: from states of all tokens to later ones."""

from collections.abc import Iterable, Iterator, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.tape.nodes import Node, Value, making
from lrptrain.relevance.tokens.attentions import Attention
from lrptrain.relevance.tokens.provenance import TokenProvenance


def bottlenecks(propagator: Propagator, targets: Iterable[Value], length: int) -> Iterator[Value]:
    """States of all tokens from which the targets come, and from nothing else beside; the latest first."""
    frontier = set(targets)
    for node in reversed(propagator.tape.nodes):
        if not frontier.intersection(node.outputs):
            continue
        frontier = frontier.difference(node.outputs).union(node.inputs)
        if len(frontier) == 1:
            (value,) = frontier
            if propagator.token_axis(value, length) is not None:
                yield value


def between(propagator: Propagator, entry: Value | None, end: Value, products: Mapping[Node, Attention]) -> list[Node]:
    """The operations through which token states go from `entry` to `end`; attention passes its values on."""

    def read(node: Node) -> Iterable[Value]:
        attention = products.get(node)
        # What makes the probabilities is theirs to say.
        return node.inputs if attention is None else [x for x in (attention.values,) if isinstance(x, Value)]

    return making([node for node in propagator.tape.nodes if entry not in node.outputs], [end], read)


def numbered(propagator: Propagator, entry: Value, length: int) -> tuple[TokenProvenance, Float[Tensor, " length"]]:
    """Origins that number the tokens of `entry`, and the numbers."""
    axis = propagator.token_axis(entry, length)
    numbers = torch.arange(1, length + 1, dtype=torch.float32)
    origins = TokenProvenance()
    origins[entry] = numbers.view([length if i == axis else 1 for i in range(len(entry.shape))])
    return origins, numbers


def last_unmixed(propagator: Propagator, logits: Value, last: Attention, states: Value, length: int) -> Value:
    """The last states of all tokens, or those before something behind the last attention that mixes tokens.

    The pooling's weights then say what is read through the mixing.
    """
    order = {value: i for i, node in enumerate(propagator.tape.nodes) for value in node.outputs}
    attended = order[last.product.outputs[0]]
    candidates = [x for x in bottlenecks(propagator, [logits], length) if order.get(x, -1) > attended]
    if not candidates or states in candidates[-1:]:
        return states
    origins, _ = numbered(propagator, candidates[-1], length)
    for node in between(propagator, candidates[-1], states, {}):
        origins.follow(node)
        if origins.mixed(node):
            return next(value for value in candidates if value in origins and order[value] < order[node.outputs[0]])
    return states
