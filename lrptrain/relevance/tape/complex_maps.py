"""Real activations that go through complex numbers: linear maps of the real ones, as which the tape has them.

A rotation by complex numbers, as some models encode positions with, becomes the products and sums of real numbers that
others write. Any other chain of linear operations, such as a Fourier transform and the real part of it, becomes one
operation "linear_map".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lrptrain.relevance.tape.functions import CAST, ENTRIES
from lrptrain.relevance.tape.nodes import Node, Value, tensors_in, version_of
from lrptrain.relevance.tape.regions import Graph, Region
from lrptrain.relevance.tape.tape import Tape

# Linear over the real numbers, in each of their activations.
_LINEAR = ENTRIES | CAST | {
    "view_as_complex", "view_as_real", "real", "imag", "conj", "conj_physical", "resolve_conj", "add", "sub", "neg",
    "mean", "sum",
} | {f"fft_{inverse}{kind}fft{axes}" for inverse in ("", "i") for kind in ("", "r") for axes in ("", "2", "n")} | {
    "fft_fftshift", "fft_ifftshift",
}  # fmt: skip


def make_real(tape: Tape, output: Value) -> None:
    """Replace every linear map through complex numbers by real operations, and forget what nobody reads then.

    What is no such map stays as it is: the engine has no rule for complex numbers.
    """
    if not [value for node in tape.nodes for value in node.outputs if value.is_complex]:
        return
    graph = Graph(tape)
    nodes: list[Node] = []
    for node in tape.nodes:
        region = _region(graph, node) if _comes_back(node) else None
        if region is None:
            nodes.append(node)
        else:
            nodes += _rotation(region) or [region.as_node("linear_map")]
    tape.nodes = nodes
    tape.keep_only(output)


def _comes_back(node: Node) -> bool:
    complex_inputs = any(value.is_complex for value in node.inputs)
    return complex_inputs and len(node.outputs) == 1 and not node.outputs[0].is_complex


def _region(graph: Graph, end: Node) -> Region | None:
    """The operations from the one real value that a real value comes from by complex ones, if they are linear."""
    members: set[Node] = set()
    sources: set[Value] = set()
    pending = [end]
    while pending:
        node = pending.pop()
        if node in members:
            continue
        if not _is_linear(node):
            return None
        members.add(node)
        for value in node.inputs:
            producer = graph.producer(value)
            if value.is_complex and producer is not None:
                pending.append(producer)
            else:
                sources.add(value)
    if len(sources) != 1:
        return None
    return Region(graph.ordered(members), sources.pop(), end.outputs[0])


def _is_linear(node: Node) -> bool:
    if node.name in ("add", "sub"):  # a constant summand makes it an affine map
        return all(isinstance(node.argument(i, name), Value) for i, name in enumerate(("input", "other")))
    if node.name == "mul":
        return len(node.inputs) == 1 and not all(isinstance(x, Value) for x in node.args[:2])
    if node.name == "div":
        return len(node.inputs) == 1 and not isinstance(node.argument(1, "other"), Value)
    # Constants that stand beside activations, as `cat` has them, are no part of a linear map.
    joined = any(x.is_floating_point() or x.is_complex() for x in tensors_in((node.args, node.kwargs)))
    return node.name in _LINEAR and not joined


# -- Rotations ---------------------------------------------------------------------------------------------------------


def _rotation(region: Region) -> list[Node]:
    """`view_as_real(view_as_complex(x) * c)` in real numbers; nothing if the region is something else."""
    names = [node.name for node in region.nodes]
    if names != ["view_as_complex", "mul", "view_as_real"]:
        return []
    product = region.nodes[1]
    factors = [x for x in tensors_in((product.args, product.kwargs)) if x.is_complex()]
    if len(factors) != 1:
        return []
    real = factors[0].real
    imaginary = factors[0].imag.resolve_neg()
    chain = _Chain(product.path, [])
    pair = region.source
    first, second = (chain.of("select", torch.select, pair, -1, i) for i in (0, 1))
    rotated_real = chain.of("sub", torch.sub, _times(chain, first, real), _times(chain, second, imaginary))
    rotated_imaginary = chain.of("add", torch.add, _times(chain, first, imaginary), _times(chain, second, real))
    chain.nodes.append(
        _node(
            "stack",
            torch.stack,
            ([rotated_real, rotated_imaginary], -1),
            (rotated_real, rotated_imaginary),
            region.result,
            product.path,
        )
    )
    return chain.nodes


def _times(chain: "_Chain", value: Value, factor: Tensor) -> Value:
    return chain.of("mul", torch.mul, value, factor)


@dataclass(frozen=True)
class _Chain:
    """Operations that stand in the place of others."""

    path: str
    nodes: list[Node]

    def of(self, name: str, function: Callable[..., Any], *args: Any) -> Value:
        """Carry out an operation, and return its result."""
        with torch.enable_grad():
            result = function(*(x.tensor if isinstance(x, Value) else x for x in args))
        value = Value(result, depends=True)
        inputs = tuple(x for x in args if isinstance(x, Value))
        self.nodes.append(_node(name, function, args, inputs, value, self.path))
        return value


def _node(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    inputs: tuple[Value, ...],
    output: Value,
    path: str,
) -> Node:
    constants = tuple((x, version_of(x)) for x in tensors_in(args))
    return Node(name, function, args, {}, inputs, (output,), path, constants)
