"""Constants: entries that a model picks of those next to its activations (a class token), or writes into them."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from lrptrain.relevance.tape.functions import CAST, ENTRIES
from lrptrain.relevance.tape.nodes import Node, Value, is_idle, map_nested, tensors_in, values_of, version_of
from lrptrain.relevance.tape.regions import run
from lrptrain.relevance.tape.tape import Tape

_PICKING = frozenset({"getitem", "select", "narrow", "slice"})
_JOINING = frozenset({"cat", "concat", "concatenate"})
_KEEPING = ENTRIES | CAST | {"add", "dropout"}


def fold_constants(tape: Tape, output: Value) -> None:
    """Take `(cat([token, x], 1) + position)[:, 0]` for the constant that it is, and what is made of it, too.

    Its entries may be picked from other samples than they are meant for, as all samples have the same. Where the
    output itself turns out to be constant, the tape stays as it is.
    """
    names = {node.name for node in tape.nodes}
    if names.isdisjoint(_PICKING) or names.isdisjoint(_JOINING):
        return
    producers: dict[Value, Node] = {}
    folded: dict[Value, Tensor] = {}
    nodes: list[Node] = []
    for recorded in tape.nodes:
        node = _with_constants(recorded, folded) if folded else recorded
        if not node.inputs or (node.name in _PICKING and _picks_constants(node, producers)):
            folded.update((value, value.tensor) for value in node.outputs)
            continue
        nodes.append(node)
        producers.update(dict.fromkeys(node.outputs, node))
    if output not in folded:
        tape.nodes = nodes


def _with_constants(node: Node, folded: Mapping[Value, Tensor]) -> Node:
    """The node with constants in the place of values that turned out to be some."""
    tensors = [folded[value] for value in node.inputs if value in folded]
    if not tensors:
        return node
    args = map_nested(node.args, Value, lambda value: folded.get(value, value))
    kwargs = map_nested(node.kwargs, Value, lambda value: folded.get(value, value))
    inputs = tuple(value for value in node.inputs if value not in folded)
    constants = (*node.constants, *((tensor, version_of(tensor)) for tensor in tensors))
    return replace(node, args=args, kwargs=kwargs, inputs=inputs, constants=constants)


def _picks_constants(node: Node, producers: Mapping[Value, Node]) -> bool:
    """Whether no entry of the output comes from the input: not a number in the input's place stays out of it."""
    if len(node.inputs) != 1:
        return False
    chain = [node]
    while chain[-1].name not in _JOINING:
        producer = producers.get(chain[-1].inputs[0])
        if producer is None or not (producer.name in _JOINING or _keeps_entries(producer)):
            return False
        chain.append(producer)
    joined = chain[-1]
    if not any(True for _ in tensors_in((joined.args, joined.kwargs))):
        return False
    unknown = {value: value.tensor.new_full([], torch.nan).expand(value.shape) for value in joined.inputs}
    with torch.no_grad():
        values = run(reversed(chain), unknown)
    return not any(bool(values[output].isnan().any()) for output in node.outputs)


def _keeps_entries(node: Node) -> bool:
    if len(node.inputs) != 1 or ("dropout" in node.name and not is_idle(node)):
        return False
    return node.name in _KEEPING


# -- Constants that are written ---------------------------------------------------------------------------------------


def choose_written(tape: Tape) -> None:
    """Replace every `x[index] = constant` by `where(index, constant, x)`, which relevance can pass."""
    tape.nodes = [_choice(node) if node.name == "setitem" and _writes_constant(node) else node for node in tape.nodes]


def _writes_constant(node: Node) -> bool:
    return values_of(node) == [node.args[0]] and not node.kwargs


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
