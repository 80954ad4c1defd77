"""Softmaxes that a model writes out: each becomes one operation "softmax", which rules and attention methods know.

`exp(x - max(x)) / sum(exp(x - max(x)))` is a softmax of x, not a quotient of which the denominator could be held fixed.
So is `log_softmax(x).exp()`, `exp(x - logsumexp(x))`, and a softmax that is masked and divided by its sum once more.
The largest entries of a softmax, divided by their sum, as routers of experts have it, are a softmax of their scores.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lrptrain.relevance.tape.functions import CAST, CHOOSING, COPIES, ENTRIES, MAXIMA, OF_FIRST, SIZES
from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tape.regions import Graph, Region, run
from lrptrain.relevance.tape.tape import Tape

# What may stand between a sum of exponentials and the division: an epsilon, a floor, an axis that is put back.
_ON_THE_SUM = CAST | ENTRIES | {"add", "clamp", "clip", "clamp_min"}
# A sum of numbers, with fixed weights: a quotient of an exponential by one is a softmax, however it is written.
_SUMMING = _ON_THE_SUM | {
    "sub", "sum", "mean", "cumsum", "mul", "div", "masked_fill", "where", "matmul", "bmm", "einsum",
}  # fmt: skip
_EXPONENTIALS = frozenset({"exp", "exp2", "rpow", "softmax"})
# A written-out softmax ends with one of them, or is one whose scores were shifted.
_ENDS = frozenset({"div", "mul", "exp", "softmax", "masked_fill", "where"})
# They take entries along an axis, each once: `op(x, axis, indices)`.
_PICKING = frozenset({"gather", *CHOOSING})
_SHIFT = ENTRIES | COPIES | MAXIMA | {"clamp", "clamp_min", "clamp_max", "nan_to_num"}
# The operation that made a value; None for the input.
Producer = Callable[[Value], Node | None]
# How far, relative to an entry, an epsilon in the denominator may move it.
_TOLERANCE = 1e-4


@dataclass(eq=False)
class SoftmaxRegion(Region):
    """The operations from scores to probabilities, called as `torch.softmax` is."""

    def __call__(self, x: Tensor, dim: int = -1) -> Tensor:
        """Repeat the operations from other scores; the axis is that of the recorded softmax."""
        return run(self.nodes, {self.source: x})[self.result]


@dataclass(frozen=True, eq=False)
class _Softmax:
    scores: Value
    dim: int


def join_softmaxes(tape: Tape) -> None:
    """Replace every written-out softmax by one operation "softmax" of the scores, and forget what nobody reads then.

    Other readers of an exponential, or of a maximum, keep it.
    """
    if not tape.nodes:
        return
    graph = Graph(tape)
    replaced: dict[Node, tuple[Node, ...]] = {}
    for node in tape.nodes:
        softmax = _written_out(graph, node) if node.name in _ENDS else None
        if softmax is not None:
            replaced[node] = (_as_node(graph, node, softmax),)
        elif node.name == "div" and len(node.inputs) == 2 and (picked := _of_picked(graph, node)):
            replaced[node] = picked
    if replaced:
        tape.nodes = [replacement for node in tape.nodes for replacement in replaced.get(node, (node,))]
        tape.keep_only(tape.nodes[-1].outputs[0])


def _as_node(graph: Graph, end: Node, softmax: _Softmax) -> Node:
    result = end.outputs[0]
    region = SoftmaxRegion(graph.ordered(_inside(graph, end, softmax.scores)), softmax.scores, result)
    constants = tuple(pair for node in region.nodes for pair in node.constants)
    args = (softmax.scores, softmax.dim)
    return Node("softmax", region, args, {}, (softmax.scores,), (result,), end.path, constants)


def _inside(graph: Graph, end: Node, source: Value) -> set[Node]:
    """The operations between a value and what `end` makes of it."""
    return set(graph.makers(end.outputs[0], lambda node: (value for value in node.inputs if value is not source)))


def _behind_exponentials(graph: Graph, end: Node) -> set[Node]:
    return set(graph.makers(end.outputs[0], lambda node: () if node.name in ("exp", "softmax") else node.inputs))


def _written_out(graph: Graph, end: Node) -> _Softmax | None:
    """The softmax of which `end` makes the probabilities, if it does."""
    if end.name in ("div", "mul") and len(end.inputs) == 2:
        return _of_quotient(graph, end)
    if end.name == "exp" and end.inputs:
        return _of_logarithm(graph, end)
    if len(end.inputs) == 1 and end.inputs[0].hidden and not end.outputs[0].hidden and _masks_by_zero(end):
        return _of_masked_rows(graph, end)
    if end.name == "softmax" and isinstance(end.argument(1, "dim"), int) and len(end.inputs) == 1:
        dim = end.argument(1, "dim")
        scores = _unshifted(graph, end.inputs[0], dim)
        return None if scores is end.inputs[0] else _Softmax(scores, dim)
    return None


# -- A quotient by a sum ----------------------------------------------------------------------------------------------


def _of_quotient(graph: Graph, end: Node) -> _Softmax | None:
    for numerator, denominator in _quotients(graph, end):
        total = _through(graph, denominator, _ON_THE_SUM)
        dim = None if total is None else _summed_axis(total)
        if total is None or dim is None:
            continue
        weights = _uncast(graph, numerator)
        seed = _exponential(graph, weights)
        if seed is None or not _is_along(seed, dim):
            continue
        graph.tape.judged.update(_behind_exponentials(graph, end))
        if not _sums_to_one(weights.tensor, end.outputs[0].tensor, dim):
            continue
        scores = _unshifted(graph, seed.inputs[0], dim)
        if _is_same(graph, _uncast(graph, total.inputs[0]), weights, scores, dim):
            return _Softmax(scores, dim)
    return None


def _of_picked(graph: Graph, end: Node) -> tuple[Node, ...]:
    """Probabilities that are picked and divided by their sum: the same picked of the scores, and their softmax."""
    # e^x_i / sum of e^x_j over the picked j, whatever all exponentials were divided by before.
    for numerator, denominator in _quotients(graph, end):
        total = _through(graph, denominator, _ON_THE_SUM)
        weights = _uncast(graph, numerator)
        pick = graph.producer(weights)
        if total is None or pick is None or pick.name not in _PICKING:
            continue
        dim = _summed_axis(total)
        seed = graph.producer(_uncast(graph, pick.inputs[0]))
        graph.tape.judged.update(_behind_exponentials(graph, end))
        if (
            dim is not None
            and seed is not None
            and seed.name in ("exp", "softmax")
            and len(seed.inputs) == 1
            and {pick.argument(1, "dim") - dim, 0} <= {0, -len(weights.shape)}
            and _is_along(seed, dim)
            and _uncast(graph, total.inputs[0]) is weights
            and _sums_to_one(weights.tensor, end.outputs[0].tensor, dim)
        ):
            scores = _unshifted(graph, seed.inputs[0], dim)
            args = (scores, dim, pick.argument(2, "index"))
            picked = Value(torch.gather(scores.tensor, *args[1:]), depends=True)
            constants = pick.constants
            return (
                Node("gather", torch.gather, args, {}, (scores,), (picked,), pick.path, constants),
                Node("softmax", torch.softmax, (picked, dim), {}, (picked,), end.outputs, end.path),
            )
    return ()


def _is_along(seed: Node, dim: int) -> bool:
    """An exponential has no axis; a softmax has one."""
    return seed.name == "exp" or seed.argument(1, "dim") in (dim, dim - len(seed.outputs[0].shape))


def _is_same(graph: Graph, summed: Value, weights: Value, scores: Value, dim: int) -> bool:
    """Whether what is summed are the weights, if need be in a second call: `exp(x) / exp(x).sum()`."""
    if summed is weights:
        return True
    seed = _exponential(graph, summed)
    of_scores = seed is not None and _unshifted(graph, seed.inputs[0], dim) is scores
    return of_scores and torch.equal(summed.tensor, weights.tensor)


def _quotients(graph: Graph, end: Node) -> Iterator[tuple[Value, Value]]:
    """Numerator and denominator; a product with a reciprocal is a quotient, too."""
    first = end.argument(0, "input")
    second = end.argument(1, "other")
    if end.name == "div":
        yield first, second
        return
    for numerator, inverse in ((first, second), (second, first)):
        node = graph.producer(inverse)
        if node is not None and (node.name == "reciprocal" or (node.name == "rdiv" and _is_number(node, 1.0))):
            yield numerator, node.inputs[0]


def _through(graph: Graph, value: Value, names: frozenset[str]) -> Node | None:
    """The operation behind a chain of operations of one value each."""
    node = graph.producer(value)
    while node is not None and node.name in names and len(_operands(node)) == 1:
        node = graph.producer(_operands(node)[0])
    return node


def _operands(node: Node) -> tuple[Value, ...]:
    """The values of which an operation reads the numbers."""
    return node.inputs[:1] if node.name in OF_FIRST else node.inputs


def _uncast(graph: Graph, value: Value) -> Value:
    node = graph.producer(value)
    while node is not None and node.name in CAST and len(_operands(node)) == 1:
        value = _operands(node)[0]
        node = graph.producer(value)
    return value


def _is_sum(node: Node) -> bool:
    """A sum; or a norm of order 1, which is one of numbers that are not negative."""
    return node.name == "sum" or (node.name in SIZES and node.argument(1, "p", node.kwargs.get("ord")) == 1)


def _summed_axis(node: Node) -> int | None:
    """The one axis of a sum, from the front; None if there are several."""
    if not _is_sum(node) or len(node.inputs) != 1:
        return None
    axes = node.argument(1 if node.name == "sum" else 2, "dim", node.kwargs.get("axis"))
    axes = [axes] if isinstance(axes, int) else list(axes or ())
    return axes[0] % len(node.inputs[0].shape) if len(axes) == 1 else None


def _exponential(graph: Graph, value: Value) -> Node | None:
    """The exponential, or the softmax, of which a value is made by weights and masks that are constants."""
    # p_i = w_i e^x_i / sum_j w_j e^x_j has the derivative p_i (1[i = j] - p_j) whatever the weights are.
    node = graph.producer(value)
    while node is not None and len(node.inputs) == 1 and (node.name in CAST | {"mul"} or _masks_by_zero(node)):
        node = graph.producer(node.inputs[0])
    return node if node is not None and node.name in ("exp", "softmax") and len(node.inputs) == 1 else None


def _masks_by_zero(node: Node) -> bool:
    if node.name == "masked_fill":
        return _is_number(node, 0.0, 2, "value")
    if node.name == "where":
        constants = [x for x in (*node.args[1:], *node.kwargs.values()) if not isinstance(x, Value)]
        return len(constants) == 1 and bool((torch.as_tensor(constants[0]) == 0).all())
    return False


def _is_number(node: Node, number: float, position: int = 1, name: str = "other") -> bool:
    constant = node.argument(position, name)
    return not isinstance(constant, Value) and bool((torch.as_tensor(constant) == number).all())


def _sums_to_one(weights: Tensor, result: Tensor, dim: int) -> bool:
    """Whether the recorded quotient is that of the weights by their sum, but for a small epsilon."""
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    expected = result.to(weights.dtype) * weights.sum(dim, keepdim=True)
    if expected.shape != weights.shape:
        return False
    tolerance = max(_TOLERANCE, 8 * torch.finfo(result.dtype).eps)
    # A row that is masked as a whole is made of zeros, or of what is no number.
    agrees = ((expected - weights).abs() <= tolerance * weights.abs()) | expected.isnan()
    return bool(agrees.all())


# -- A custom autograd function ----------------------------------------------------------------------------------------


def _of_masked_rows(graph: Graph, end: Node) -> _Softmax | None:
    """A softmax of which whole rows are set to 0, as an autograd function returns it: gradients arrive there only."""
    softmax = _exponential(graph, end.inputs[0])
    if softmax is None or softmax.name != "softmax" or not isinstance(softmax.argument(1, "dim"), int):
        return None
    dim = softmax.argument(1, "dim")
    probabilities = end.outputs[0].tensor
    total = probabilities.sum(dim, keepdim=True)
    if not bool(((probabilities == end.inputs[0].tensor) | (total == 0)).all()):
        return None
    return _Softmax(_unshifted(graph, softmax.inputs[0], dim), dim)


# -- Shifts and logarithms --------------------------------------------------------------------------------------------


def _unshifted(graph: Graph, scores: Value, dim: int) -> Value:
    """The scores before something of their own, the same along the axis, was subtracted: a softmax is the same."""
    node = graph.producer(scores)
    if node is None or node.name != "sub" or len(node.inputs) != 2 or "alpha" in node.kwargs:
        return scores
    between = graph.between(node, _SHIFT)
    if between is None or not _is_constant_along(graph, node.argument(1, "other"), scores, dim):
        return scores
    before, _ = between
    return before if _uncast(graph, node.argument(0, "input")) is before and before.shape == scores.shape else scores


def _is_constant_along(graph: Graph, shift: Value, scores: Value, dim: int) -> bool:
    node = graph.producer(shift)
    while (
        node is not None and node.name in COPIES | {"expand", "expand_as", "broadcast_to"} and len(_operands(node)) == 1
    ):
        shift = _operands(node)[0]
        node = graph.producer(shift)
    axis = dim % len(scores.shape) - (len(scores.shape) - len(shift.shape))
    return axis < 0 or shift.shape[axis] == 1


def _of_logarithm(graph: Graph, end: Node) -> _Softmax | None:
    """`log_softmax(x).exp()` and `exp(x - logsumexp(x))`."""
    logarithm = graph.producer(_uncast(graph, end.inputs[0]))
    if logarithm is None:
        return None
    if logarithm.name == "log_softmax" and isinstance(logarithm.argument(1, "dim"), int):
        dim = logarithm.argument(1, "dim")
        return _Softmax(_unshifted(graph, logarithm.inputs[0], dim), dim)
    if logarithm.name != "sub" or len(logarithm.inputs) != 2 or "alpha" in logarithm.kwargs:
        return None
    scores = logarithm.argument(0, "input")
    total = _through(graph, logarithm.argument(1, "other"), CAST | ENTRIES)
    if total is None or total.name != "logsumexp" or total.inputs != (scores,):
        return None
    axes = total.argument(1, "dim")
    axes = [axes] if isinstance(axes, int) else list(axes)
    if len(axes) != 1 or not _is_constant_along(graph, logarithm.argument(1, "other"), scores, axes[0]):
        return None
    probabilities = end.outputs[0].tensor
    return _Softmax(scores, axes[0]) if _sums_to_one(probabilities, probabilities, axes[0]) else None


# -- What looks like one -----------------------------------------------------------------------------------------------


def divides_exponentials(producer: Producer, numerator: Value, denominator: Value) -> bool:
    """Whether a quotient has exponentials above and, summed with fixed weights only, below."""
    if _is_constant_sum(producer, denominator):
        return False
    # Not necessarily the same ones: a model may call exp twice.
    below = _exponentials(producer, denominator, products=False)
    return bool(below) and bool(_exponentials(producer, numerator, products=True))


def _is_constant_sum(producer: Producer, value: Value) -> bool:
    """Whether a value is the sum of softmaxes along their own axis, each times a constant: it depends on no score."""
    node = producer(value)
    while node is not None and node.name in CAST | ENTRIES and len(_operands(node)) == 1:
        node = producer(_operands(node)[0])
    dim = None if node is None else _summed_axis(node)
    return node is not None and dim is not None and _adds_up(producer, node.inputs[0], dim)


def _adds_up(producer: Producer, value: Value, dim: int) -> bool:
    node = producer(value)
    if node is None or any(operand.shape != value.shape for operand in _operands(node)):
        return False
    if node.name == "softmax":
        axis = node.argument(1, "dim")
        return isinstance(axis, int) and axis % len(value.shape) == dim
    weighs = node.name == "mul" or (node.name == "div" and isinstance(node.argument(0, "input"), Value))
    if weighs and len(node.inputs) == 1:
        weights = [x for x in (*node.args, *node.kwargs.values()) if not isinstance(x, Value)]
        scales = all(_is_the_same_along(x, dim - len(value.shape)) for x in weights)
    else:
        scales = node.name in CAST | {"add", "sub"}
    return scales and all(_adds_up(producer, operand, dim) for operand in _operands(node))


def _is_the_same_along(constant: Any, axis: int) -> bool:
    """Whether a constant has no entries of its own along an axis, which is counted from the last one."""
    return not isinstance(constant, Tensor) or constant.ndim < -axis or constant.shape[axis] == 1


def _exponentials(producer: Producer, value: Value, *, products: bool) -> set[Node]:
    """The exponentials that a value is a sum of; or also, of products with other activations."""
    reached: set[Node] = set()
    pending = [value]
    seen = {value}
    while pending:
        node = producer(pending.pop())
        if node is None:
            continue
        if node.name in _EXPONENTIALS:
            reached.add(node)
        operands = _operands(node)
        follows = products or node.name in ("add", "sub") or node.name in ENTRIES or len(operands) == 1
        if (node.name in _SUMMING or _is_sum(node)) and follows:
            pending.extend(operand for operand in operands if operand not in seen)
            seen.update(operands)
    return reached
