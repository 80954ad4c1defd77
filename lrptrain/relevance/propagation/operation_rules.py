"""Rules per operation that the composites share: entries, products, choices, maxima; and how a rule reads its node."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from lrptrain.relevance.propagation import rules
from lrptrain.relevance.propagation.composite import InputRelevance, OutputRelevance, RuleFunction
from lrptrain.relevance.propagation.linear_maps import factors, linear_map, transpose_of, vjp
from lrptrain.relevance.propagation.propagator import Propagator, only_input
from lrptrain.relevance.tape.functions import (
    ALONG,
    CAST,
    DENSE,
    ENTRIES,
    INVERSES,
    MAXIMA,
    PRODUCTS,
    PUTS,
    RESHAPES,
    SUMS,
    TRANSPOSITIONS,
    WRITTEN,
)
from lrptrain.relevance.tape.nodes import Node, Value, named_axes, numbers_in, operands_of, order_of_axes, unsupported
from lrptrain.relevance.tape.sample_axes import crosses_samples
from lrptrain.relevance.tape.softmaxes import divides_exponentials
from lrptrain.relevance.tape.writes import indexed_write

# What each of the two factors of a product gets.
Shares = Sequence[Tensor | None]

# -- How a rule reads its node ----------------------------------------------------------------------------------------


def single_output(relevance: OutputRelevance) -> Tensor:
    """Relevance of an operation's one output."""
    (part,) = relevance
    assert part is not None
    return part


def resolve(operand: Value | Tensor | float, like: Tensor) -> Tensor:
    """The operand's numbers, in the precision of `like`."""
    tensor = operand.tensor if isinstance(operand, Value) else operand
    return torch.as_tensor(tensor, dtype=like.dtype, device=like.device)


def shape_back(value: Value, share: Tensor) -> tuple[Value, Tensor]:
    """Undo broadcasting: every entry of the value gets the sum of its copies."""
    return value, share.sum_to_size(value.shape)


class Weighted(NamedTuple):
    """An operation with a constant weight, in the precision of the relevance that arrives."""

    part: Tensor
    value: Value
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    forward: rules.Linear
    transpose: rules.Linear


def weighted_call(node: Node, relevance: OutputRelevance) -> Weighted:
    """Read such an operation; see `linear_map` for errors."""
    part = single_output(relevance)
    value, weight, bias, forward = linear_map(node)
    x = value.tensor.to(part.dtype)
    return Weighted(part, value, x, weight.to(part.dtype), bias, forward, transpose_of(node, x, forward))


def sum_operands(node: Node, like: Tensor) -> list[tuple[Value | Tensor | float, Tensor]]:
    """The two operands of a sum or difference, each with what it contributes."""
    operands = [node.argument(0, "input"), node.argument(1, "other")]
    numbers = [resolve(operand, like) for operand in operands]
    factors = sum_factors(node)
    return [
        (operand, x if factor == 1 else x * factor)
        for operand, x, factor in zip(operands, numbers, factors, strict=True)
    ]


def sum_factors(node: Node) -> tuple[float, float]:
    """The factors of the two operands of a sum or difference; `rsub(x, y)` is y - x."""
    alpha = node.kwargs.get("alpha", 1)
    return {"add": (1, alpha), "sub": (1, -alpha), "rsub": (-alpha, 1)}[node.name]


def reduced_axes(propagator: Propagator, node: Node) -> list[int]:
    """The axes that a mean or sum runs over."""
    axes = named_axes(node)
    at = propagator.axis(node.inputs[0])
    if propagator.samples > 1 and at.axis in axes and at.only is None:
        raise unsupported(node.name, node.path, "averages over the samples of a batch")
    return axes


def check_samples(propagator: Propagator, node: Node) -> None:
    """Raise where a product of two activations multiplies those of one sample by those of another."""
    if crosses_samples(node, propagator.axes, propagator.samples):
        raise unsupported(node.name, node.path, "multiplies one sample of a batch by another: explain one at a time")


def spread(part: Tensor, axes: list[int], x: Tensor) -> Tensor:
    """Expand what was reduced over `axes` to the shape of `x`."""
    if part.ndim < x.ndim:
        for axis in axes:
            part = part.unsqueeze(axis)
    return part.expand_as(x)


def evenly(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A mean or sum, whatever the numbers: each of its terms gets the same."""
    axes = reduced_axes(propagator, node)
    value = node.inputs[0]
    part = spread(single_output(relevance), axes, value.tensor)
    yield value, part / math.prod(value.shape[axis] for axis in axes)


# -- Rules ------------------------------------------------------------------------------------------------------------


def entries(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Relevance follows the entries through indexing, reshaping, concatenation and expansion."""
    like = next(part for part in relevance if part is not None)
    source = node.inputs[0]
    if node.name in RESHAPES and like.numel() == source.shape.numel():
        return [(source, like.reshape(source.shape))]
    if node.name in TRANSPOSITIONS:
        axes = order_of_axes(node, like.ndim)
        return [(source, like.permute([axes.index(axis) for axis in range(len(axes))]))]
    if node.name in ENTRIES:  # where entries go does not depend on them: nothing is made again, or cast, for it
        inputs = [like.new_empty(value.shape) for value in node.inputs]
    else:
        inputs = [value.tensor.to(like.dtype) for value in node.inputs]
    parts = vjp(partial(repeat_values, node), inputs, relevance)
    return [(value, part) for value, part in zip(node.inputs, parts, strict=True) if part is not None]


def written(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """`x[index] = y`, `scatter`: relevance of what was written goes to what it was written from, the rest stays."""
    part = single_output(relevance)
    if "reduce" in node.kwargs:
        raise unsupported(node.name, node.path, "adds or multiplies what it writes")
    # Where an entry is written twice one of the two counts, and torch does not say which.
    if indexed_write(node).repeats(part.shape, part.device):
        raise unsupported(node.name, node.path, "writes an entry more than once")
    return entries(propagator, node, relevance)


def put(propagator: Propagator, node: Node, relevance: OutputRelevance, *, accumulated: RuleFunction) -> InputRelevance:
    """`x.put(...)` and `x.index_put(...)`: entries are written, or added by the rule of sums where they accumulate."""
    rule = accumulated if indexed_write(node).adds else written
    return rule(propagator, node, relevance)


def selected(propagator: Propagator, node: Node, relevance: OutputRelevance, *, stabiliser: float) -> InputRelevance:
    """Entries that are picked out, divided by themselves as the published code of Chefer et al. 2021 does."""
    divided = [
        None if part is None else value.tensor.to(part.dtype) * rules.safe_divide(part, value.tensor, stabiliser)
        for value, part in zip(node.outputs, relevance, strict=True)
    ]
    return entries(propagator, node, divided)


def multiply(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A product with a constant passes relevance unchanged; one of two activations halves it.

    A product with one over an activation is a quotient, whose denominator is held fixed as that of a norm is.
    """
    part = single_output(relevance)
    values = carriers(propagator, node)
    return [shape_back(value, part / len(values)) for value in values]


def carriers(propagator: Propagator, node: Node) -> list[Value]:
    """The factors of a product that relevance goes to: those that are no denominators."""
    operands = [node.argument(0, "input"), node.argument(1, "other")]
    values = [operand for operand in operands if isinstance(operand, Value)]
    numerators = [value for value in values if not is_inverse(propagator, value)]
    if len(values) == 2 and len(numerators) == 1:
        check_denominator(propagator, node, numerators[0], values[values[0] is numerators[0]])
    return numerators if len(values) > 1 and numerators else values


def check_denominator(propagator: Propagator, node: Node, numerator: Value, denominator: Value) -> None:
    """Raise where holding the denominator fixed would be wrong."""
    if divides_exponentials(propagator.producer, numerator, denominator):
        raise unsupported(node.name, node.path, "divides exponentials by a sum of them, as no known softmax does")


def is_inverse(propagator: Propagator, value: Value) -> bool:
    """Whether a value is one over an activation, expanded or times a constant."""
    node = propagator.producer(value)
    while node is not None and len(node.inputs) == 1 and node.name in ENTRIES | CAST | {"mul"}:
        node = propagator.producer(node.inputs[0])
    if node is None:
        return False
    exponent = node.argument(1, "exponent") if node.name == "pow" else None
    return node.name in INVERSES or (isinstance(exponent, (int, float)) and exponent < 0)


def divide(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A quotient passes relevance to its numerator; a denominator is held fixed, as that of a norm is."""
    numerator, _ = quotient(propagator, node)
    return [shape_back(numerator, single_output(relevance))]


def quotient(propagator: Propagator, node: Node) -> tuple[Value, Value | Tensor | float]:
    """The numerator and the denominator of a division."""
    numerator = node.argument(0, "input")
    if not isinstance(numerator, Value):
        raise unsupported(node.name, node.path, "divides a constant by an activation")
    denominator = node.argument(1, "other")
    if isinstance(denominator, Value):
        check_denominator(propagator, node, numerator, denominator)
    return numerator, denominator


def by_jacobian(
    propagator: Propagator, node: Node, relevance: OutputRelevance, *, stabiliser: float = 0.0
) -> InputRelevance:
    """R_i = x_i sum_o J_oi R_o / y_o with the Jacobian J: conserving for what grows as its input does."""
    precision = next(part.dtype for part in relevance if part is not None)
    for value in node.outputs if node.name in ALONG else ():
        propagator.axis(value)
    shares = [
        None if part is None else rules.safe_divide(part, rules.stabilised(value.tensor.to(precision), stabiliser))
        for value, part in zip(node.outputs, relevance, strict=True)
    ]
    inputs = [value.tensor.to(precision) for value in node.inputs]
    gradients = vjp(partial(repeat_values, node), inputs, shares)
    for value, x, gradient in zip(node.inputs, inputs, gradients, strict=True):
        if gradient is not None:
            yield value, x * gradient


def masked(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """`masked_fill(x, mask, constant)`: relevance of what was overwritten goes nowhere."""
    part = single_output(relevance)
    return [shape_back(value, part.masked_fill(node.argument(1, "mask"), 0.0)) for value in only_input(node)]


def finite(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """`nan_to_num(x)`: relevance of what was replaced goes nowhere."""
    part = single_output(relevance)
    return [(value, part.masked_fill(~value.tensor.isfinite(), 0.0)) for value in only_input(node)]


def choose(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """`where(condition, a, b)`: relevance follows the chosen entries."""
    part = single_output(relevance)
    condition = node.argument(0, "condition")
    first = node.argument(1, "input")
    if node.function is Tensor.where:
        condition = node.argument(1, "condition")
        first = node.args[0]
    operands = ((first, condition), (node.argument(2, "other"), ~condition))
    return [shape_back(v, torch.where(chosen, part, 0.0)) for v, chosen in operands if isinstance(v, Value)]


def halves(
    propagator: Propagator,
    node: Node,
    part: Tensor,
    a: Tensor,
    b: Tensor,
    multiply: rules.Linear,
    stabiliser: float = 0.0,
) -> Shares:
    """Half of relevance goes by each factor of a product."""
    if node.name == "einsum":  # with the transposes by differentiation
        back = vjp(multiply, [a, b], [rules.safe_divide(part, multiply(a, b), stabiliser)])
        return [None if s is None else x * s / 2 for x, s in zip((a, b), back, strict=True)]
    z = node.outputs[0].tensor
    z = z if z.dtype == part.dtype else a @ b
    if stabiliser:
        stabiliser *= math.prod(_factor(propagator, value) for value in operands_of(node))
    return rules.halves(part, z, a, b, lambda s: s @ b.mT, lambda s: a.mT @ s, stabiliser)


def product(
    propagator: Propagator,
    node: Node,
    relevance: OutputRelevance,
    *,
    constant: RuleFunction,
    shared: Callable[..., Shares] = halves,
) -> InputRelevance:
    """Matrix products of two activations, of which `shared` says what each gets; one with a constant is a layer."""
    left, right, multiply = factors(node)
    if not (isinstance(left, Value) and isinstance(right, Value)):
        return constant(propagator, node, relevance)
    check_samples(propagator, node)
    part = single_output(relevance)
    shares = shared(propagator, node, part, left.tensor.to(part.dtype), right.tensor.to(part.dtype), multiply)
    return [shape_back(value, x) for value, x in zip((left, right), shares, strict=True) if x is not None]


def _factor(propagator: Propagator, value: Value) -> float:
    """The constant that a factor was multiplied by: published stabilisers belong to products of what is not scaled."""
    node = propagator.producer(value)
    if node is None or node.name not in ("mul", "div") or len(node.inputs) != 1:
        return 1.0
    constant = node.argument(1, "other")
    constant = float(constant) if isinstance(constant, (int, float)) else 1.0
    return constant if node.name == "mul" else 1 / constant


def to_the_winner(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A maximum copies one of its terms, which gets all of the relevance; equal terms share it."""
    part = relevance[0]
    assert part is not None
    propagator.axis(node.outputs[0])
    parts = vjp(partial(repeat_values, node), [value.tensor.to(part.dtype) for value in node.inputs], [part])
    return [(value, back) for value, back in zip(node.inputs, parts, strict=True) if back is not None]


def to_the_largest(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """`logsumexp(x)` is a soft maximum: R_i = softmax(x)_i R, "min-take-most" of Kauffmann et al. 2020."""
    if any(other.name == "softmax" and set(node.inputs) & set(other.inputs) for other in propagator.tape.nodes):
        raise unsupported(node.name, node.path, "merges parts of one attention")
    return to_the_winner(propagator, node, relevance)


def passing_rules(accumulated: RuleFunction) -> dict[str, RuleFunction]:
    """The rules that all composites have: where entries go, whatever their values; `accumulated` adds them up."""
    return {
        **dict.fromkeys(ENTRIES, entries),
        **dict.fromkeys(WRITTEN, written),
        **dict.fromkeys(PUTS, partial(put, accumulated=accumulated)),
        **dict.fromkeys(MAXIMA, to_the_winner),
        "mul": multiply,
        "div": divide,
        "masked_fill": masked,
        "where": choose,
    }


def lrp_rules(sums: RuleFunction, weighted: RuleFunction, accumulated: RuleFunction) -> dict[str, RuleFunction]:
    """What the composites of layer-wise relevance propagation share beside these."""
    return {
        **passing_rules(accumulated),
        **dict.fromkeys(DENSE, weighted),
        **dict.fromkeys(PRODUCTS, partial(product, constant=weighted)),
        **dict.fromkeys(SUMS, sums),
        "nan_to_num": finite,
        "logsumexp": to_the_largest,
    }


def repeat_values(node: Node, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Repeat a node's call on other inputs; what is not floating-point is left out: the indices of a maximum, say."""
    replacements = dict(zip(node.inputs, inputs, strict=True))
    return tuple(numbers_in(node.call(replacements.__getitem__)))
