"""Attention on a tape: probabilities that weigh values, and how they come to the product with them."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from lrptrain.relevance.tape.functions import AS_ANOTHER, CAST, DENSE, ELEMENTWISE, ENTRIES
from lrptrain.relevance.tape.nodes import Node, Value, axis_letters, operands_of
from lrptrain.relevance.tape.regions import Graph
from lrptrain.relevance.tape.tape import Tape

# What may stand between the softmax and the product with the values: the map is then that of the softmax.
_TRANSPARENT = (ELEMENTWISE - {"softmax"}) | {
    "mul",
    "div",
    "masked_fill",
    "where",
    "view",
    "reshape",
    "unflatten",
    "flatten",
}
# Behind these the map is what they make: heads that are mixed, or subtracted from one another.
_REWRITING = _TRANSPARENT | ENTRIES | CAST | DENSE | {"add", "sub", "einsum", "matmul"}
_JOINING = frozenset({"add", "sub", "mul", "div", "stack", "cat"})


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention.

    Attributes:
        block: Its map, `[..., queries, keys]`: the probabilities, or what the model makes of them.
        product: The operation in which it weighs the values.
        weights: The map as it stands there, behind dropout and masks.
    """

    block: Value
    product: Node
    weights: Value

    @property
    def values(self) -> Value | Tensor:
        """What is weighed."""
        first, second = operands_of(self.product)
        values: Value | Tensor = second if first is self.weights else first
        return values

    @property
    def axes(self) -> tuple[int, int]:
        """The axis of the values that counts the keys, and the axis of the output that counts the queries."""
        weights, values, output = axis_letters(self.product, self.weights)
        return values.index(weights[-1]), output.index(weights[-2])


def find_attentions(tape: Tape, *, square: bool = True) -> list[Attention]:
    """The attention maps of a model, in order, each with every product in which it weighs values."""
    graph = Graph(tape)
    return [attention for node in tape.nodes for attention in _attention(graph, node, square)]


def _attention(graph: Graph, product: Node, square: bool) -> Iterator[Attention]:
    if product.name not in ("matmul", "bmm", "einsum"):
        return
    for weights in operands_of(product):
        if isinstance(weights, Value) and _is_map(weights, square) and _weighs(product, weights):
            block = _map(graph, weights, square)
            if block is not None and (len(block.shape) > 2 or len(product.inputs) > 1):  # else a memory that is read
                yield Attention(block, product, weights)
                return


def _weighs(product: Node, weights: Value) -> bool:
    """Whether the last axis of the weights is summed over, and the one before it stays."""
    if product.name == "einsum" and (
        len(operands_of(product)) != 2 or not isinstance(product.args[0], str) or "." in product.args[0]
    ):
        return False
    letters, values, output = axis_letters(product, weights)
    return bool(output) and letters[-1] not in output and letters[-1] in values and letters[-2] in output


def has_constant_queries(graph: Graph, attention: Attention) -> bool:
    """Whether the queries are none of the input's tokens, but learned."""
    return isinstance(queries_of(graph, attention), Tensor)


def queries_of(graph: Graph, attention: Attention) -> Value | Tensor | None:
    """The queries, a constant where they do not come from the input; None if no product makes the probabilities."""
    makers = graph.makers(attention.block, lambda node: node.inputs)
    product = next((node for node in makers if node.name in ("matmul", "bmm", "einsum")), None)
    return None if product is None else operands_of(product)[0]


def _is_map(weights: Value, square: bool) -> bool:
    # Without an axis of samples, what is not square may as well be samples by classes, or by experts.
    is_square = len(weights.shape) > 1 and weights.shape[-1] == weights.shape[-2]
    return is_square or (len(weights.shape) > 2 and not square)


def _map(graph: Graph, weights: Value, square: bool) -> Value | None:
    """The softmax that the weights are, or else the weights themselves if there is a softmax in them."""
    value = weights
    node = graph.producer(value)
    while node is not None and node.name in _TRANSPARENT and len(_sources(node)) == 1:
        (value,) = _sources(node)
        node = graph.producer(value)
    if node is not None and _is_probabilities(node, square):
        return node.outputs[0]
    return weights if _has_softmax(graph, weights, square) else None


def _is_probabilities(node: Node, square: bool) -> bool:
    """A softmax over the last axis of a map."""
    dim = node.argument(1, "dim")
    ndim = len(node.outputs[0].shape)
    return node.name == "softmax" and dim is not None and dim % ndim == ndim - 1 and _is_map(node.outputs[0], square)


def _has_softmax(graph: Graph, weights: Value, square: bool) -> bool:
    return any(_is_probabilities(node, square) for node in graph.makers(weights, _rewritten))


def _rewritten(node: Node) -> tuple[Value, ...]:
    sources = _sources(node)
    return sources if node.name in _REWRITING and (len(sources) == 1 or node.name in _JOINING) else ()


def _sources(node: Node) -> tuple[Value, ...]:
    """The values that the numbers come from: of `probabilities.type_as(scores)`, only the first."""
    return node.inputs[:1] if node.name in AS_ANOTHER else node.inputs
