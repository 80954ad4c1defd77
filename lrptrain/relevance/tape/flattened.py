"""Linear layers that flatten the tokens before and restore them after, made linear layers on the tokens."""

from torch.nn import functional as F

from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tape.regions import Graph
from lrptrain.relevance.tape.tape import Tape

_RESHAPES = frozenset({"view", "reshape", "flatten", "unflatten"})


def unflatten(tape: Tape) -> None:
    """Replace `linear(x.view(-1, width)).view(*x.shape[:-1], -1)` by `linear(x)`, which makes the same numbers."""
    graph, replaced, gone = Graph(tape), dict[Node, Node](), set[Node]()
    for node in tape.nodes:
        before, after = _around(graph, node)
        if before is not None and after is not None:
            gone.update((before, node))
            replaced[after] = _on_tokens(node, before.inputs[0], after.outputs[0])
    tape.nodes = [replaced.get(node, node) for node in tape.nodes if node not in gone]


def _around(graph: Graph, node: Node) -> tuple[Node | None, Node | None]:
    """The flattening before a linear layer and the restoring after it, if nothing else reads what is in between."""
    if node.name != "linear" or len(node.inputs) != 1 or node.argument(0, "input") is not node.inputs[0]:
        return None, None
    before, readers = graph.maker(node.inputs[0]), graph.readers.get(node.outputs[0], [])
    if before is None or len(readers) != 1 or not {before.name, readers[0].name} <= _RESHAPES:
        return None, None
    after = readers[0]
    inside, outside = before.inputs[0].shape, after.outputs[0].shape
    widths = (node.inputs[0].shape[-1], node.outputs[0].shape[-1])
    same = inside[:-1] == outside[:-1] and (inside[-1], outside[-1]) == widths
    return (before, after) if same and graph.closed({before, node, after}, after.outputs[0]) else (None, None)


def _on_tokens(node: Node, source: Value, result: Value) -> Node:
    weight, bias = node.argument(1, "weight"), node.argument(2, "bias")
    return Node("linear", F.linear, (source, weight, bias), {}, (source,), (result,), node.path, node.constants)
