"""Which rule serves which operation. A composite maps the name of an operation to a rule."""

from functools import partial

import torch
from torch import Tensor

from lrptrain.relevance.propagation import in_place_rules, rules
from lrptrain.relevance.propagation.linear_maps import OutputRelevance, factors, linear_map, transpose_of, vjp
from lrptrain.relevance.propagation.pooling import POOLING
from lrptrain.relevance.propagation.propagator import Composite, InputRelevance, Propagator, Rule, only_input
from lrptrain.relevance.tape.functions import DENSE, ENTRIES, PRODUCTS, is_in_place
from lrptrain.relevance.tape.nodes import Node, Value, unsupported


def entries(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Relevance follows the entries through indexing, reshaping, concatenation and expansion."""
    precision = next(part.dtype for part in relevance if part is not None)
    inputs = [value.tensor.to(precision) for value in node.inputs]
    found = vjp(partial(_repeat, node), inputs, relevance)
    return [(value, part) for value, part in zip(node.inputs, found, strict=True) if part is not None]


def _repeat(node: Node, *inputs: Tensor) -> Tensor | tuple:
    """The node's call on other inputs, which it may overwrite if it works in place."""
    in_place = is_in_place(node.function, node.args, node.kwargs)
    place = {value: x.clone() if in_place else x for value, x in zip(node.inputs, inputs, strict=True)}
    return node.call(lambda value: place[value])


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


def sum_operands(node: Node, like: Tensor) -> list[tuple[Value | Tensor | float, Tensor]]:
    """The two operands of a sum or difference, each with what it contributes."""
    operands = [node.argument(0, "input"), node.argument(1, "other")]
    first, second = (resolve(operand, like) for operand in operands)
    factor = node.kwargs.get("alpha", 1) * (-1 if node.name == "sub" else 1)
    return [(operands[0], first), (operands[1], second if factor == 1 else second * factor)]


def add(propagator: Propagator, node: Node, relevance: OutputRelevance, *, normalised: bool) -> InputRelevance:
    """Sums and differences; a constant is an operand like any other, and its share goes nowhere."""
    part = single_output(relevance)
    operands, (first, second) = zip(*sum_operands(node, part), strict=True)
    z = node.outputs[0].tensor
    constants = [x for x, operand in zip((first, second), operands, strict=True) if not isinstance(operand, Value)]
    lean = normalised and not torch.is_grad_enabled() and z.dtype == part.dtype
    if lean and all(x.isfinite().all() for x in constants):
        two = in_place_rules.rescaled_sum(part, z, (first, second), propagator.total(node))
        return [shape_back(v, share) for v, share in zip(operands, two, strict=True) if isinstance(v, Value)]
    # An additive mask of -inf carries no relevance, and inf * 0 must not make it NaN.
    shares = tuple(torch.where(part == 0, 0.0, x) for x in rules.proportional(part, (first, second)))
    if normalised:
        shares = rules.rescale(part, shares, propagator.total(node))
    return [shape_back(v, share) for v, share in zip(operands, shares, strict=True) if isinstance(v, Value)]


def multiply(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A product with a constant passes relevance unchanged; one of two activations halves it."""
    part = single_output(relevance)
    values = [
        operand for operand in (node.argument(0, "input"), node.argument(1, "other")) if isinstance(operand, Value)
    ]
    return [shape_back(value, part / len(values)) for value in values]


def divide(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A quotient by a constant passes relevance unchanged."""
    if isinstance(node.argument(1, "other"), Value):
        raise unsupported(node.name, node.path, "divides by an activation")
    return multiply(propagator, node, relevance)


def masked(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """`masked_fill(x, mask, constant)`: relevance of what was overwritten goes nowhere."""
    part = single_output(relevance)
    return [shape_back(value, part.masked_fill(node.argument(1, "mask"), 0.0)) for value in only_input(node)]


def choose(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """`where(condition, a, b)`: relevance follows the chosen entries."""
    part = single_output(relevance)
    condition, first = node.argument(0, "condition"), node.argument(1, "input")
    if node.function is Tensor.where:
        condition, first = node.argument(1, "condition"), node.args[0]
    operands = ((first, condition), (node.argument(2, "other"), ~condition))
    return [shape_back(v, torch.where(chosen, part, 0.0)) for v, chosen in operands if isinstance(v, Value)]


def reduced_axes(propagator: Propagator, node: Node) -> list[int]:
    """The axes that a mean or sum runs over.

    Raises:
        UnsupportedOperationError: If the samples of the batch are among them.
    """
    dims = node.argument(1, "dim", node.kwargs.get("axis"))
    x = node.inputs[0].tensor
    dims = [dims] if isinstance(dims, int) else dims
    axes = sorted(d % x.ndim for d in (dims if dims is not None else range(x.ndim)))
    at = propagator.axes[node.inputs[0]]
    if propagator.samples > 1 and (at is None or at.axis in axes):
        raise unsupported(node.name, node.path, "averages over the samples of a batch")
    return axes


def spread(part: Tensor, axes: list[int], x: Tensor) -> Tensor:
    """Expand what was reduced over `axes` to the shape of `x`."""
    if part.ndim < x.ndim:
        for axis in axes:
            part = part.unsqueeze(axis)
    return part.expand_as(x)


def average(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Mean pooling: a linear map with equal positive weights."""
    part = single_output(relevance)
    axes, x = reduced_axes(propagator, node), node.inputs[0].tensor.to(part.dtype)
    yield node.inputs[0], rules.positive_mean(spread(part, axes, x), x, lambda t: t.sum(axes, keepdim=True))


def _output_less_bias(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None, forward: rules.Linear) -> Tensor:
    """Taken from the tape where its precision suffices."""
    z = node.outputs[0].tensor
    if z.dtype != x.dtype:
        return forward(x, weight)
    return z if bias is None else z - bias


def affine(propagator: Propagator, node: Node, relevance: OutputRelevance, *, zplus: bool) -> InputRelevance:
    """Linear layers and convolutions; the patch embedding takes the z^B rule with the image's own bounds."""
    part = single_output(relevance)
    value, weight, bias, forward = linear_map(node)
    x, weight = value.tensor.to(part.dtype), weight.to(part.dtype)
    if zplus and node.name == "linear" and not torch.is_grad_enabled():
        y = node.outputs[0].tensor
        given = (y, bias) if y.dtype == part.dtype else (forward(x, weight), None)
        yield value, in_place_rules.zplus(part, x, weight, *given)
        return
    transpose = transpose_of(node, x, forward)
    if node is propagator.patch_embedding:
        low, high = x.flatten(1).amin(1).view(-1, 1, 1, 1), x.flatten(1).amax(1).view(-1, 1, 1, 1)
        yield value, rules.zbox(part, x, low, high, weight, forward, transpose)
    elif zplus:
        z = _output_less_bias(node, x, weight, bias, forward)
        yield value, rules.zplus(part, x, weight, z, forward, transpose)
    else:
        yield value, rules.alpha1_beta0(part, x, weight, forward, transpose)


def product(propagator: Propagator, node: Node, relevance: OutputRelevance, *, constant: Rule) -> InputRelevance:
    """Matrix products of two activations; one with a constant is a linear layer."""
    left, right, _ = factors(node)
    if not (isinstance(left, Value) and isinstance(right, Value)):
        return constant(propagator, node, relevance)
    part = single_output(relevance)
    if node.name == "einsum":
        return _einsum(node, part)
    a, b = left.tensor.to(part.dtype), right.tensor.to(part.dtype)
    z = node.outputs[0].copy()
    z = z if z.dtype == part.dtype else a @ b
    halves = rules.halves if torch.is_grad_enabled() else in_place_rules.halves
    shares = halves(part, z, a, b, lambda s: s @ b.mT, lambda s: a.mT @ s)
    return [shape_back(left, shares[0]), shape_back(right, shares[1])]


def _einsum(node: Node, part: Tensor) -> InputRelevance:
    """The same rule, with the transposes by differentiation."""
    left, right, multiply = factors(node)
    a, b = left.tensor.to(part.dtype), right.tensor.to(part.dtype)
    back = vjp(multiply, [a, b], [rules.safe_divide(part, multiply(a, b))])
    return [(v, x * s / 2) for v, x, s in zip((left, right), (a, b), back, strict=True) if s is not None]


def _composite(sums: Rule, weighted: Rule) -> Composite:
    """What the composites of layer-wise relevance propagation share."""
    products = dict.fromkeys(PRODUCTS, partial(product, constant=weighted))
    return {
        **dict.fromkeys(ENTRIES, entries),
        **dict.fromkeys(DENSE, weighted),
        **products,
        "add": sums,
        "sub": sums,
        "mul": multiply,
        "div": divide,
        "masked_fill": masked,
        "where": choose,
        "mean": average,
        "sum": average,
        **POOLING,
    }


# Chefer, Gur, Wolf, CVPR 2021: z+, halved products, rescaled sums.
CHEFER = _composite(partial(add, normalised=True), partial(affine, zplus=True))
# The LRP baseline of the same paper: alpha-1-beta-0 without the normalisations.
ALPHA_BETA = _composite(partial(add, normalised=False), partial(affine, zplus=False))
