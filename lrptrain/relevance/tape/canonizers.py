"""Canonizers: rewrite a tape so that one operation stands for what a model writes out in several.

Activations and norms in elementary operations become one operation each, and linear layers on flattened tokens become
linear layers on the tokens. The numbers stay the same.

`x * sigmoid(1.702 * x)` is one function of x, as `gelu(x)` is: relevance belongs to x as a whole, and is not to be
halved between the factors. `x * rsqrt(mean(x^2) + eps)` is a normalisation, as `rms_norm(x)` is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from lrptrain.relevance.tape.functions import CAST, POINTWISE
from lrptrain.relevance.tape.nodes import Node, Value, tensors_in, version_of
from lrptrain.relevance.tape.regions import Graph, Region, run
from lrptrain.relevance.tape.sample_axes import Axes, sample_axes
from lrptrain.relevance.tape.softmaxes import divides_exponentials
from lrptrain.relevance.tape.tape import Tape

_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "rsub", "rdiv", "pow"})
_REDUCTIONS = frozenset({"mean", "sum", "var", "std", "var_mean", "norm", "vector_norm", "linalg_vector_norm"})
# By what factor an operation multiplies the degree of its input: |x|^2 has degree 2, 1 / |x| degree -1.
_POWERS = {"square": 2.0, "var": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "rdiv": -1.0}
_SAME_DEGREE = CAST | _REDUCTIONS | {"abs", "expand", "expand_as"}
_NORMALISING = _SAME_DEGREE | _POWERS.keys() | {"add", "sub", "mul", "div", "pow", "clamp", "clamp_min"}


def collapse(tape: Tape, samples: int) -> None:
    """Replace written-out activations ("pointwise") and norms ("rms_norm", "layer_norm") by one operation each.

    An activation ends where values are joined, or raised to a power, that are all pointwise functions of one value, of
    its shape; it vanishes at 0. A norm is a value, or a value less its mean, divided by something of the same degree
    that is reduced within each sample; a weight and a bias per feature that follow belong to it. The largest such
    region counts; nothing else may read what is inside.
    """
    graph = _Batch(tape, samples)
    swallowed = set[Node]()
    replacements = dict[Node, Node]()
    # From the last operation to the first, so that the largest region is met before those inside of it.
    for node in reversed(tape.nodes):
        if node.name not in _ARITHMETIC or node in swallowed or not _joins(node):
            continue
        for name, region in (*_norm(graph, node), *_activation(graph, node)):
            if not swallowed.intersection(region.nodes):
                swallowed.update(region.nodes)
                replacements[region.nodes[-1]] = region.as_node(name)
                break
    tape.nodes = [replacements.get(node, node) for node in tape.nodes if node in replacements or node not in swallowed]


@dataclass(eq=False)
class _Batch(Graph):
    """The tape of a batch."""

    samples: int

    @cached_property
    def axes(self) -> Axes:
        """The sample axis of every value."""
        assert self.tape.root is not None
        return sample_axes(self.tape.nodes, self.tape.root, self.samples)


def _joins(node: Node) -> bool:
    """Whether arithmetic has several operands from the input; x * x counts, and x ** 2."""
    operands = [argument for argument in (*node.args, *node.kwargs.values()) if isinstance(argument, Value)]
    return len(operands) > 1 or node.name == "pow"


# The operation's new name, and what it stands for; or nothing.
Replacement = list[tuple[str, Region]]


def _activation(graph: _Batch, end: Node) -> Replacement:
    between = graph.between(end, _ARITHMETIC | POINTWISE)
    if between is None:
        return []
    source, members = between
    result = end.outputs[0]
    # All values inside have the shape of the source, and nothing outside reads them: y = f(x), entry by entry.
    same = all(node.outputs[0].shape == source.shape for node in members)
    if not same or not graph.closed(members, result):
        return []
    region = Region(graph.ordered(members), source, result)
    graph.tape.judged.update(region.nodes)
    return [("pointwise", region)] if _vanishes_at_zero(region) else []


def _vanishes_at_zero(region: Region) -> bool:
    """x / x does not, nor x ** -2: what is there without x is not to be credited to x."""
    x = region.source.tensor
    with torch.no_grad():
        return bool((region(x.new_zeros([1] * x.ndim)) == 0).all())


@dataclass(eq=False)
class NormRegion(Region):
    """A written-out normalisation."""

    factor: Value
    linear: tuple[Node, ...]
    skipped: frozenset[Node]

    def frozen(self, x: Tensor) -> Tensor:
        """The normalisation with its denominator as recorded, without its bias; see `normalisation.frozen`."""
        values = {self.source: x, self.factor: self.factor.tensor.to(x.dtype)}
        return run(self.linear, values, self.skipped)[self.result]


def _norm(graph: _Batch, end: Node) -> Replacement:
    between = graph.between(end, _NORMALISING) if end.name in ("mul", "div") and len(end.inputs) == 2 else None
    if between is None:
        return []
    nearest, members = between
    result = end.outputs[0]
    operands = (end.argument(0, "input"), end.argument(1, "other"))
    # x * rsqrt(...) may come with its factors in either order; in a quotient only the second is the factor.
    for numerator, factor in (operands, operands[::-1])[: 1 if end.name == "div" else 2]:
        source, members_before = _numerator(graph, numerator, nearest)
        inside = members | members_before
        if source is None or not graph.closed(inside, result):
            continue
        if divides_exponentials(graph.producer, numerator, factor):
            continue
        axes = _reduced_axes(graph, source, inside)
        # A norm is homogeneous of degree 0: n(c x) = n(x) for large c, whatever the epsilon under the root.
        if not axes or _degrees(source, graph.ordered(inside)).get(result) != 0:
            continue
        tail, skipped = _tail(graph, result, axes)
        nodes = graph.ordered({*inside, *tail})
        linear = graph.ordered({*members_before, end, *tail})
        casts = {node for node in linear if node.name in CAST}
        region = NormRegion(nodes, source, nodes[-1].outputs[0], factor, linear, frozenset(casts | skipped))
        return [("layer_norm" if any(node.name == "sub" for node in members_before) else "rms_norm", region)]
    return []


def _numerator(graph: _Batch, value: Value, nearest: Value) -> tuple[Value | None, set[Node]]:
    """What is normalised, and the operations that cast or centre it; None if there are others on the way."""
    members: set[Node] = set()
    while True:
        producer = graph.producer(value)
        if producer is not None and producer.name == "sub" and len(producer.inputs) == 2:
            # x - mean(x): the numerator of a layer norm. Without it the norm is an RMSNorm.
            source = producer.inputs[0]
            mean = graph.producer(producer.inputs[1])
            if mean is not None and mean.name in ("mean", "var_mean") and mean.inputs == (source,):
                return (source if nearest in (source, value) else None), members | {producer, mean}
        if value is nearest:
            return value, members
        if producer is None or producer.name not in CAST:
            return None, members
        members.add(producer)
        value = producer.inputs[0]


def _reduced_axes(graph: _Batch, source: Value, members: set[Node]) -> set[int]:
    """The axes over which a norm sums; none if the samples of the batch are among them."""
    shape = source.shape
    # [2, 16, 8] -> [2, 16, 1] reduces axis 2. Any change of shape but an axis that shrinks to 1 is no norm.
    axes = set[int]()
    for node in members:
        for value in node.outputs:
            reduced = value.shape
            if len(reduced) != len(shape) or any(a not in (1, b) for a, b in zip(reduced, shape, strict=True)):
                return set()
            axes.update(i for i, (a, b) in enumerate(zip(reduced, shape, strict=True)) if a != b)
    at = graph.axes[source] if axes and graph.samples > 1 else None
    return set() if graph.samples > 1 and (at is None or at.axis in axes) else axes


def _degrees(source: Value, nodes: tuple[Node, ...]) -> dict[Value, float]:
    """By what power of c every value grows when the source does by a large factor c; where there is none, no entry."""
    # x / sqrt(mean(x^2) + eps):   x 1,   x^2 2,   mean 2,   + eps 2,   sqrt 1,   quotient 0
    degrees = {source: 1.0}
    for node in nodes:
        degree = _degree(node, degrees)
        if degree is not None:
            degrees.update(dict.fromkeys(node.outputs, degree))
        if node.name == "var_mean" and degree is not None:
            degrees[node.outputs[0]] = 2 * degree  # the variance; the mean has the degree of the input
    return degrees


def _degree(node: Node, degrees: Mapping[Value, float]) -> float | None:
    if any(value not in degrees for value in node.inputs):
        return None
    first, second = (node.argument(i, name) for i, name in enumerate(("input", "other")))
    of_first, of_second = (degrees[x] if isinstance(x, Value) else 0.0 for x in (first, second))
    if node.name == "mul":
        return of_first + of_second
    if node.name == "div":
        return of_first - of_second
    if node.name == "pow":
        exponent = node.argument(1, "exponent")
        return of_first * exponent if isinstance(exponent, (int, float)) else None
    # For large c a constant does not count beside a value that grows; of two values, both must grow alike.
    if node.name in ("add", "sub", "clamp", "clamp_min"):
        both = isinstance(first, Value) and isinstance(second, Value)
        grown = max(of_first, of_second)
        return grown if (of_first == of_second if both else grown > 0) else None
    return of_first * _POWERS.get(node.name, 1.0)


def _tail(graph: _Batch, result: Value, axes: set[int]) -> tuple[list[Node], set[Node]]:
    """The weight, the bias and casts behind a quotient, and which of them is the bias."""
    # gamma * n + beta: each step must be the only reader of the one before, and the bias ends the norm.
    tail: list[Node] = []
    while True:
        readers = graph.readers.get(result, [])
        if len(readers) != 1 or readers[0].inputs != (result,) or readers[0].name not in CAST | {"mul", "add"}:
            return tail, set()
        (node,) = readers
        if node.name in ("mul", "add"):
            operands = (node.argument(0, "input"), node.argument(1, "other"))
            constant = operands[1] if operands[0] is result else operands[0]
            if isinstance(constant, Value) or not _per_feature(constant, len(result.shape), axes):
                return tail, set()
        tail.append(node)
        result = node.outputs[0]
        if node.name == "add":
            return tail, {node}


def _per_feature(constant: Tensor | float, ndim: int, axes: set[int]) -> bool:
    """Whether it varies along the normalised axes only, as no position embedding does."""
    if not isinstance(constant, Tensor):
        return True
    shape = [1] * (ndim - constant.ndim) + list(constant.shape)
    return len(shape) == ndim and all(size == 1 or axis in axes for axis, size in enumerate(shape))


_TOKEN_RESHAPES = frozenset({"view", "reshape", "flatten", "unflatten"})


def unflatten(tape: Tape) -> None:
    """Replace `linear(x.view(-1, width)).view(*x.shape[:-1], -1)` by `linear(x)`, which makes the same numbers."""
    graph = Graph(tape)
    replaced = dict[Node, Node]()
    removed = set[Node]()
    for node in tape.nodes:
        before, after = _around(graph, node) if node.name == "linear" else (None, None)
        if before is not None and after is not None:
            removed.update((before, node))
            replaced[after] = _on_tokens(node, before.inputs[0], after.outputs[0])
    tape.nodes = [replaced.get(node, node) for node in tape.nodes if node not in removed]


def _around(graph: Graph, node: Node) -> tuple[Node | None, Node | None]:
    """The flattening before a linear layer and the restoring after it, if nothing else reads what is in between."""
    if len(node.inputs) != 1 or node.argument(0, "input") is not node.inputs[0]:
        return None, None
    before = graph.producer(node.inputs[0])
    readers = graph.readers.get(node.outputs[0], [])
    if before is None or len(readers) != 1 or not {before.name, readers[0].name} <= _TOKEN_RESHAPES:
        return None, None
    after = readers[0]
    inside = before.inputs[0].shape
    outside = after.outputs[0].shape
    widths = (node.inputs[0].shape[-1], node.outputs[0].shape[-1])
    same = inside[:-1] == outside[:-1] and (inside[-1], outside[-1]) == widths
    return (before, after) if same and graph.closed({before, node, after}, after.outputs[0]) else (None, None)


def _on_tokens(node: Node, source: Value, result: Value) -> Node:
    weight = node.argument(1, "weight")
    bias = node.argument(2, "bias")
    return Node("linear", F.linear, (source, weight, bias), {}, (source,), (result,), node.path, node.constants)


# -- Rotations by complex numbers --------------------------------------------------------------------------------------


def rotate_in_real_numbers(tape: Tape, output: Value) -> None:
    """Replace `view_as_real(view_as_complex(x) * c)`, by which some models encode positions, by products and sums.

    What else goes through complex numbers stays as it is: the engine has no rule for it.
    """
    if not any(value.is_complex for node in tape.nodes for value in node.outputs):
        return
    graph = Graph(tape)
    tape.nodes = [each for node in tape.nodes for each in _rotation(graph, node) or [node]]
    tape.keep_only(output)


def _rotation(graph: Graph, end: Node) -> list[Node]:
    """The operations of real numbers in the place of a rotation; none if `end` ends no rotation."""
    product = graph.producer(end.inputs[0]) if end.name == "view_as_real" else None
    pairs = graph.producer(product.inputs[0]) if product is not None and product.name == "mul" else None
    factors = [] if product is None else [x for x in tensors_in((product.args, product.kwargs)) if x.is_complex()]
    if product is None or pairs is None or pairs.name != "view_as_complex" or len(factors) != 1:
        return []
    nodes: list[Node] = []

    def of(name: str, function: Callable[..., Any], *args: Any, result: Value | None = None) -> Value:
        inputs = tuple(x for x in tree_leaves(args) if isinstance(x, Value))
        if result is None:
            with torch.enable_grad():
                result = Value(function(*(x.tensor if isinstance(x, Value) else x for x in args)), depends=True)
        constants = tuple((x, version_of(x)) for x in tensors_in(args))
        nodes.append(Node(name, function, args, {}, inputs, (result,), product.path, constants))
        return result

    real, imaginary = factors[0].real, factors[0].imag.resolve_neg()
    first, second = (of("select", torch.select, pairs.inputs[0], -1, i) for i in (0, 1))

    def times(value: Value, factor: Tensor) -> Value:
        return of("mul", torch.mul, value, factor)

    rotated_real = of("sub", torch.sub, times(first, real), times(second, imaginary))
    rotated_imaginary = of("add", torch.add, times(first, imaginary), times(second, real))
    of("stack", torch.stack, [rotated_real, rotated_imaginary], -1, result=end.outputs[0])
    return nodes
