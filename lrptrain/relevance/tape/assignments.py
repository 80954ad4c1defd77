"""Constants that a model writes into an activation, `x[mask] = 0`, as the choice that they are."""

import torch

from lrptrain.relevance.tape.nodes import Node, Value, map_nested
from lrptrain.relevance.tape.tape import Tape


def choose_written(tape: Tape) -> None:
    """Replace every `x[index] = constant` by `where(index, constant, x)`, which relevance can pass."""
    for node in tape.nodes:
        if node.name == "setitem" and _writes_constant(node):
            _rewrite(node)


def _writes_constant(node: Node) -> bool:
    found: list[Value] = []
    map_nested((node.args[1:], node.kwargs), Value, found.append)
    return isinstance(node.args[0], Value) and not found and not node.kwargs


def _rewrite(node: Node) -> None:
    target, index, written = node.args
    output = node.outputs[0].tensor
    is_written = torch.zeros(output.shape, dtype=torch.bool, device=output.device)
    is_written[index] = True
    constant = torch.zeros_like(output)
    constant[index] = written
    node.name = "where"
    node.function = torch.where
    node.args = (is_written, constant, target)
    node.constants = tuple((tensor, tensor._version) for tensor in (is_written, constant))
