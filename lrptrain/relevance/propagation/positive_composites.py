"""Composites without negative contributions: the rules of transformer attribution, and alpha-1-beta-0."""

from functools import partial

import torch
from torch import Tensor

from lrptrain.relevance.propagation import in_place_rules, rules
from lrptrain.relevance.propagation.composite import Composite, InputRelevance, OutputRelevance, RuleFunction
from lrptrain.relevance.propagation.linear_maps import linear_map, transpose_of, vjp
from lrptrain.relevance.propagation.operation_rules import (
    choose,
    divide,
    entries,
    finite,
    masked,
    multiply,
    product,
    reduced_axes,
    repeat_values,
    shape_back,
    single_output,
    spread,
    sum_operands,
    to_the_winner,
)
from lrptrain.relevance.propagation.propagator import Propagator, only_input
from lrptrain.relevance.tape.functions import AVERAGES, DENSE, ENTRIES, MAXIMA, PRODUCTS
from lrptrain.relevance.tape.nodes import Node, Value


def add(propagator: Propagator, node: Node, relevance: OutputRelevance, *, normalised: bool) -> InputRelevance:
    """Sums and differences; a constant is an operand like any other, and its share goes nowhere."""
    part = single_output(relevance)
    operands, (first, second) = zip(*sum_operands(node, part), strict=True)
    z = node.outputs[0].tensor
    # The rule in place is no function of autograd, and has no defence against masks of -inf.
    in_place = normalised and not torch.is_grad_enabled() and z.dtype == part.dtype
    if in_place and bool(z.sum().isfinite()):
        pair = in_place_rules.rescaled_sum(part, z, (first, second), propagator.total(node))
        return [shape_back(v, share) for v, share in zip(operands, pair, strict=True) if isinstance(v, Value)]
    # An additive mask of -inf carries no relevance, and inf * 0 must not make it NaN.
    shares = rules.proportional(part, (rules.bounded(first), rules.bounded(second)))
    if normalised:
        shares = rules.rescale(part, shares, propagator.total(node))
    return [shape_back(v, share) for v, share in zip(operands, shares, strict=True) if isinstance(v, Value)]


def average(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Mean pooling: a linear map with equal positive weights."""
    part = single_output(relevance)
    axes = reduced_axes(propagator, node)
    x = node.inputs[0].tensor.to(part.dtype)
    yield node.inputs[0], rules.positive_mean(spread(part, axes, x), x, lambda t: t.sum(axes, keepdim=True))


def averaged(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Average pooling: a linear map with positive weights (z+ rule)."""
    (part,) = relevance
    assert part is not None
    propagator.axis(node.outputs[0])
    for value in only_input(node):
        positive = value.tensor.to(part.dtype).clamp(min=0)
        share = rules.safe_divide(part, repeat_values(node, positive)[0])
        (back,) = vjp(partial(repeat_values, node), [positive], [share])
        assert back is not None
        yield value, positive * back


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
    x = value.tensor.to(part.dtype)
    weight = weight.to(part.dtype)
    if zplus and node.name == "linear" and not torch.is_grad_enabled():
        y = node.outputs[0].tensor
        output = (y, bias) if y.dtype == part.dtype else (forward(x, weight), None)
        yield value, in_place_rules.zplus(part, x, weight, *output)
        return
    transpose = transpose_of(node, x, forward)
    if node is propagator.patch_embedding:
        low = x.flatten(1).amin(1).view(-1, 1, 1, 1)
        high = x.flatten(1).amax(1).view(-1, 1, 1, 1)
        yield value, rules.zbox(part, x, low, high, weight, forward, transpose)
    elif zplus:
        z = _output_less_bias(node, x, weight, bias, forward)
        yield value, rules.zplus(part, x, weight, z, forward, transpose)
    else:
        yield value, rules.alpha1_beta0(part, x, weight, forward, transpose)


def _composite(name: str, sums: RuleFunction, weighted: RuleFunction) -> Composite:
    """Return what the composites of layer-wise relevance propagation share."""
    return Composite(
        {
            **dict.fromkeys(ENTRIES, entries),
            **dict.fromkeys(DENSE, weighted),
            **dict.fromkeys(PRODUCTS, partial(product, constant=weighted)),
            "add": sums,
            "sub": sums,
            "mul": multiply,
            "div": divide,
            "masked_fill": masked,
            "nan_to_num": finite,
            "where": choose,
            "mean": average,
            "sum": average,
            **dict.fromkeys(AVERAGES, averaged),
            **dict.fromkeys(MAXIMA, to_the_winner),
        },
        name=name,
    )


# Chefer, Gur, Wolf, CVPR 2021: z+, halved products, rescaled sums.
CHEFER = _composite("chefer", partial(add, normalised=True), partial(affine, zplus=True))
# The LRP baseline of the same paper: alpha-1-beta-0 without the normalisations.
ALPHA_BETA = _composite("alpha_beta", partial(add, normalised=False), partial(affine, zplus=False))
