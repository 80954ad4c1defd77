"""Batch norms of trained statistics, merged with the linear layer or convolution beside them.

A rule that tells contributions apart sees the weights. `bn(conv(x))` and a convolution with merged weights are the same
function, and a map must not depend on which way a model writes it. (zennit's `SequentialMergeBatchNorm` merges, too.)
"""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tape.regions import Graph
from lrptrain.relevance.tape.tape import Tape

# Their arguments, in order, with the defaults behind the weight.
_CONVOLUTION = (("bias", None), ("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))
_LAYERS: dict[str, tuple[tuple[str, Any], ...]] = {
    "linear": (("bias", None),),
    **{f"conv{axes}d": _CONVOLUTION for axes in (1, 2, 3)},
}


def merge_batch_norms(tape: Tape) -> None:
    """Replace a layer and the batch norm behind it, or a batch norm and the linear layer behind it, by one layer.

    Only where nothing else reads what is between, and the norm has running statistics.
    """
    norms = [node for node in tape.nodes if node.name == "batch_norm"]
    if not norms:
        return
    graph = Graph(tape)
    merged: dict[Node, Node] = {}
    removed: set[Node] = set()
    for norm in norms:
        if norm.argument(5, "training", False) or len(norm.inputs) != 1:
            continue
        before, behind = graph.producer(norm.inputs[0]), graph.readers.get(norm.outputs[0], [])
        if before is not None and before not in removed and _is_layer(before) and _only(graph, norm, before):
            merged[norm] = _behind(before, norm)
            removed.add(before)
        elif (
            len(behind) == 1 and behind[0].name == "linear" and _is_layer(behind[0]) and len(norm.inputs[0].shape) == 2
        ):
            merged[behind[0]] = _before(norm, behind[0])
            removed.add(norm)
    tape.nodes = [merged.get(node, node) for node in tape.nodes if node not in removed]


def _is_layer(node: Node) -> bool:
    """Return whether an operation has a weight that does not come from the input."""
    return node.name in _LAYERS and len(node.inputs) == 1 and node.argument(0, "input") is node.inputs[0]


def _only(graph: Graph, norm: Node, layer: Node) -> bool:
    """Return whether a norm alone reads a layer, and runs over its output features."""
    value = layer.outputs[0]
    return graph.readers.get(value, []) == [norm] and (layer.name != "linear" or len(value.shape) == 2)


def _behind(layer: Node, norm: Node) -> Node:
    slope, offset = _line(norm)
    weight, bias = layer.argument(1, "weight"), layer.argument(2, "bias")
    weight = weight * slope.to(weight.dtype).view(-1, *[1] * (weight.ndim - 1))
    return _layer(layer, norm, weight, offset if bias is None else slope * bias + offset, norm.outputs[0])


def _before(norm: Node, layer: Node) -> Node:
    slope, offset = _line(norm)
    weight, bias = layer.argument(1, "weight"), layer.argument(2, "bias")
    shift = F.linear(offset.to(weight.dtype), weight, bias)
    return _layer(layer, norm, weight * slope.to(weight.dtype), shift, layer.outputs[0], norm.inputs[0])


def _line(norm: Node) -> tuple[Tensor, Tensor]:
    """Return the slope and the offset of each feature."""
    mean, variance = norm.argument(1, "running_mean"), norm.argument(2, "running_var")
    weight, bias = norm.argument(3, "weight"), norm.argument(4, "bias")
    slope = (variance + norm.argument(7, "eps", 1e-5)).rsqrt()
    slope = slope if weight is None else slope * weight
    offset = -mean * slope
    return slope, offset if bias is None else offset + bias


def _layer(layer: Node, norm: Node, weight: Tensor, bias: Tensor, result: Value, source: Value | None = None) -> Node:
    source = layer.inputs[0] if source is None else source
    settings = [layer.argument(2 + i, name, default) for i, (name, default) in enumerate(_LAYERS[layer.name])][1:]
    args = (source, weight, bias.to(weight.dtype), *settings)
    constants = (*layer.constants, *norm.constants)
    return Node(layer.name, getattr(F, layer.name), args, {}, (source,), (result,), layer.path, constants)
