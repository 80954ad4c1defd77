"""What a recording says about a model's sequence: its attention blocks, its tokens, and where the patches went."""

from collections.abc import Iterator

import torch

from lrptrain.relevance.flow import FLOW
from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.tape.functions import ELEMENTWISE
from lrptrain.relevance.tape.nodes import Node, Value, einsum_labels
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.types import TokenLayout, UnsupportedModelError

# What may stand between the softmax and the product with the values.
_TRANSPARENT = ELEMENTWISE | {"mul", "div", "masked_fill", "where", "view", "reshape", "unflatten", "flatten"}


def attention_probabilities(tape: Tape) -> list[Value]:
    """The self-attention probabilities of every block, in order.

    They are softmax outputs over the last axis, square, and weigh values.
    """
    readers: dict[Value, list[Node]] = {}
    for node in tape.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    # A gate or a classifier may have a softmax, too: it is not square, or its output weighs no values.
    outputs = (node.outputs[0] for node in tape.nodes if node.name == "softmax" and _over_last_axis(node))
    return [value for value in outputs if _is_square(value) and _weighs_values(value, readers)]


def _over_last_axis(node: Node) -> bool:
    dim = node.argument(1, "dim")
    ndim = len(node.outputs[0].shape)
    return dim is not None and dim % ndim == ndim - 1


def _is_square(probabilities: Value) -> bool:
    return len(probabilities.shape) >= 3 and probabilities.shape[-1] == probabilities.shape[-2]


def _weighs_values(value: Value, readers: dict[Value, list[Node]]) -> bool:
    for node in readers.get(value, ()):
        if node.name in ("matmul", "bmm") and node.argument(0, "input") is value:
            return True
        if node.name == "einsum" and einsum_labels(node, value)[0][-1:] not in einsum_labels(node, value)[1]:
            return True
        if node.name in _TRANSPARENT and _weighs_values(node.outputs[0], readers):
            return True
    return False


def token_states(propagator: Propagator, length: int) -> Iterator[Value]:
    """All recorded values of shape `[batch, length, width]` or `[length, batch, width]`, first to last."""
    assert propagator.tape.root is not None
    candidates = [propagator.tape.root, *(value for node in propagator.tape.nodes for value in node.outputs)]
    return (value for value in candidates if propagator.token_axis(value, length) is not None)


def joints(tape: Tape, output: Value, after: Value) -> set[Value]:
    """The values behind `after` that all of the output passes through: nothing that it comes from goes by them."""
    # From the output backwards: where one value only is still to be made, everything comes through it.
    found = set[Value]()
    awaited = {output}
    for node in reversed(tape.nodes):
        if len(awaited) == 1:
            found |= awaited
        if after in node.outputs:
            break
        if awaited.intersection(node.outputs):
            awaited = awaited.difference(node.outputs).union(node.inputs)
    return found


def reads_sequence(propagator: Propagator, block: Value, length: int) -> bool:
    """Whether there are states of all tokens that the attention probabilities can come from; not so in windows."""
    for node in propagator.tape.nodes:
        if any(propagator.token_axis(value, length) is not None for value in node.inputs):
            return True
        if block in node.outputs:
            return False
    return False


def text_layout(length: int) -> TokenLayout:
    """Every input position of a text is content."""
    return TokenLayout(length, tuple(range(length)))


def image_layout(propagator: Propagator, length: int) -> TokenLayout:
    """Find the patches among the tokens by following the patch embedding's output to the sequence.

    Raises:
        UnsupportedModelError: If the tokens cannot be matched with a grid of patches.
    """
    node = propagator.patch_embedding
    if node is None or len(node.outputs[0].shape) != 4:
        raise UnsupportedModelError(
            "no patch convolution was found, so the grid of the tokens is unknown; pass "
            "layout=TokenLayout(length, positions, grid)"
        )
    patches = node.outputs[0]
    rows, columns = patches.shape[-2:]
    for tokens in token_states(propagator, length):
        positions = _positions(propagator, patches, tokens, length)
        if positions is not None:
            return TokenLayout(length, positions, (rows, columns))
    raise UnsupportedModelError(
        f"the {rows} x {columns} patches cannot be found among the {length} tokens that the attention sees (windows, "
        "merged or dropped tokens?); pass layout=TokenLayout(length, positions, grid), or take input_x_gradient or lrp"
    )


def _positions(propagator: Propagator, patches: Value, tokens: Value, length: int) -> tuple[int, ...] | None:
    """Number the tokens, walk back to the patches, and read off which number arrives at which patch."""
    # Token i holds the number i + 1, spread over its width. At the patch that token i stands for arrives i + 1; where
    # several tokens are merged, or one is dropped, no whole number arrives, or 0.
    axis = propagator.token_axis(tokens, length)
    assert axis is not None
    shape = [length if i == axis else 1 for i in range(3)]
    numbers = torch.arange(1, length + 1, dtype=torch.float64, device=tokens.tensor.device).view(shape)
    start = (numbers / tokens.shape[-1]).expand(tokens.shape)
    arrived = propagator.propagate({tokens: start}, FLOW, [patches])[patches]
    arrived_numbers = arrived.sum(1).flatten(1)
    positions = arrived_numbers.round()
    distinct = (torch.unique(positions[0]).numel() == positions.shape[1]) and bool((positions == positions[0]).all())
    integral = bool((arrived_numbers - positions).abs().max() < 1e-6) and bool((positions >= 1).all())
    return tuple((positions[0].long() - 1).tolist()) if distinct and integral else None
