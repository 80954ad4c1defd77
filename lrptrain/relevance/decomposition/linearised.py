"""The tape as the linear map that it is once everything nonlinear is frozen, to push contributions forwards.

A value that is a sum of parts is passed on part by part. Every operation becomes L(x) + o: L is linear, and meets the
recorded forward pass exactly, L(u) + o = y; the offset o, what the operation gives at 0, belongs to no part. An affine
operation is its own L; a normalisation keeps its denominators; an elementwise function g has the slope
(g(u) - g(0)) / u, which is integrated gradients with baseline 0 for a sum of parts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.propagation.normalisation import frozen
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.tape.functions import COPIES, DENSE, ELEMENTWISE, ENTRIES, NORMALISATIONS, PRODUCTS, is_in_place
from lrptrain.relevance.tape.nodes import Node, Value, behind, making, map_nested, tensors_in, values_of
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.types import UnsupportedMethodError

_MULTIPLYING = PRODUCTS | DENSE | {"mul"}
_JOINING = frozenset({"cat", "concat", "concatenate", "stack", "pad", "constant_pad_nd"})
_AFFINE = ENTRIES | _MULTIPLYING | {"add", "sub", "rsub", "div", "neg", "where", "masked_fill", "mean", "sum"}
_WITH_OFFSET = _JOINING | DENSE | {"add", "sub", "rsub", "where", "masked_fill"}
_NONLINEAR = ELEMENTWISE - NORMALISATIONS - {"softmax", "native_layer_norm"}

Values = dict[Value, Tensor]


class Link(NamedTuple):
    """An operation, and which of its inputs are sums of parts; the others are constants, as recorded."""

    node: Node
    moving: tuple[Value, ...]


class Step(NamedTuple):
    """A link with its frozen linear map."""

    link: Link
    linear: Callable[[Values], list[Tensor]]


def chain(tape: Tape, sources: Iterable[Value], targets: Iterable[Value]) -> list[Link]:
    """The operations by which `targets` depend on `sources`, in order."""
    # Backwards from the targets to what they need, up to the sources; then forwards, keeping what comes from a source.
    sources = set(sources)
    nodes = making([node for node in tape.nodes if sources.isdisjoint(node.outputs)], targets)
    links = [Link(node, tuple(x for x in node.inputs if x in moving)) for node, moving in behind(nodes, sources)]
    for link in links:
        _check(link)
    return links


def linearise(links: Sequence[Link]) -> list[Step]:
    """Freeze a chain of operations."""
    return [Step(link, _linear_part(link)) for link in links]


def push(steps: Iterable[Step], sources: Mapping[Value, Tensor]) -> Values:
    """Pass a part of every source of a chain on to every value of it."""
    values = dict(sources)
    for step in steps:
        values.update(zip(step.link.node.outputs, step.linear(values), strict=True))
    return values


def secant(function: Callable[[Tensor], Tensor], u: Float[Tensor, "..."], y: Float[Tensor, "..."]) -> Tensor:
    """The slope (g(u) - g(0)) / u of an elementwise function g, and its limit g'(0) at u = 0."""
    with torch.enable_grad():
        origin = u.new_zeros([1] * u.ndim).requires_grad_()
        at_zero = function(origin)
        (derivative,) = torch.autograd.grad(at_zero.sum(), origin, allow_unused=True)
    start = at_zero.detach()
    limits = torch.finfo(u.dtype)
    # Below, the quotient has lost more digits to rounding than the limit is away.
    reach = (start.abs() * limits.eps).sqrt().clamp(min=limits.tiny / limits.eps)
    near = u.abs() <= reach
    slope = (y - start) / torch.where(near, 1.0, u)
    return torch.where(near, 0.0 if derivative is None else derivative, slope)


def _check(link: Link) -> None:
    node, moving = link
    operands = [x for x in values_of(node) if x in moving]
    if node.name in _MULTIPLYING and len(operands) > 1:
        raise _refusal(node, "multiplies two values that both come from the tokens (a gate?)")
    if node.name == "div" and node.argument(1, "other") in moving:
        raise _refusal(node, "divides by a value that comes from the tokens")
    if not (is_norm(node) or node.name in _AFFINE | _NONLINEAR):
        raise _refusal(node, "is neither linear nor elementwise nor a normalisation")


def is_norm(node: Node) -> bool:
    """Whether the call is a normalisation, written out or not."""
    return node.name in NORMALISATIONS or hasattr(node.function, "frozen")


def _refusal(node: Node, why: str) -> UnsupportedMethodError:
    return UnsupportedMethodError(
        f"{node.name} in module '{node.path or '(model)'}' {why}: behind it, tokens cannot be told apart"
    )


def _linear_part(link: Link) -> Callable[[Values], list[Tensor]]:
    node = link.node
    source, *_ = link.moving
    if is_norm(node):
        norm = frozen(node)
        return lambda values: [norm(values[source])]
    if node.name in COPIES:
        return lambda values: [values[source]]
    if node.name in _NONLINEAR and node.name not in _AFFINE:
        slope = secant(
            lambda x: _call(node, {source: x})[0],
            at_least_float32(source.tensor),
            at_least_float32(node.outputs[0].tensor),
        )
        return lambda values: [values[source] * slope]
    if node.name == "linear":
        weight = node.argument(1, "weight").to(at_least_float32(source.tensor).dtype)
        return lambda values: [F.linear(values[source], weight)]
    if node.name not in _WITH_OFFSET or (node.name in ("add", "sub") and len(link.moving) == len(values_of(node)) == 2):
        return lambda values: _call(node, {value: values[value] for value in link.moving})
    offset = _call(node, {value: torch.zeros_like(at_least_float32(value.tensor)) for value in link.moving})
    return lambda values: [
        x - o for x, o in zip(_call(node, {value: values[value] for value in link.moving}), offset, strict=True)
    ]


def _call(node: Node, moving: Mapping[Value, Tensor]) -> list[Tensor]:
    """Repeat a call with parts in the places of the moving inputs, in their precision."""
    precision = next(iter(moving.values())).dtype
    in_place = is_in_place(node.function, node.args, node.kwargs)

    def place(value: Value) -> Tensor:
        if value not in moving:
            return value.tensor.to(precision)
        return moving[value].clone() if in_place else moving[value]

    constants = map_nested((node.args, node.kwargs), Tensor, lambda x: x.to(precision) if x.is_floating_point() else x)
    args, kwargs = map_nested(constants, Value, place)
    # Parts that come in batches are not laid out in memory as the recorded value was.
    function = torch.Tensor.reshape if node.name == "view" else node.function
    return [y for y in tensors_in(function(*args, **kwargs)) if y.is_floating_point()]
