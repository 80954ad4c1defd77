"""Constants that a model writes into an activation, `x[mask] = 0`, as the choice that they are."""

from dataclasses import replace

import torch

from lrptrain.relevance.tape.nodes import Node, Value, map_nested, version_of
from lrptrain.relevance.tape.tape import Tape


def choose_written(tape: Tape) -> None:
    """Replace every `x[index] = constant` by `where(index, constant, x)`, which relevance can pass."""
    tape.nodes = [_choice(node) if node.name == "setitem" and _writes_constant(node) else node for node in tape.nodes]


def _writes_constant(node: Node) -> bool:
    values: list[Value] = []
    map_nested((node.args[1:], node.kwargs), Value, values.append)
    return isinstance(node.args[0], Value) and not values and not node.kwargs


def _choice(node: Node) -> Node:
    target, index, written = node.args
    output = node.outputs[0].tensor
    is_written = torch.zeros(output.shape, dtype=torch.bool, device=output.device)
    is_written[index] = True
    constant = torch.zeros_like(output)
    constant[index] = written
    args = (is_written, constant, target)
    constants = tuple((tensor, version_of(tensor)) for tensor in args[:2])
    return replace(node, name="where", function=torch.where, args=args, constants=constants)
