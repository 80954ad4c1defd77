"""Composites that tell contributions apart by their sign: alpha-beta, and the rules of transformer attribution."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from lrptrain.relevance.fast.zplus import zplus as zplus_of_layer
from lrptrain.relevance.propagation import rules
from lrptrain.relevance.propagation.composite import Composite, InputRelevance, OutputRelevance, RuleFunction
from lrptrain.relevance.propagation.linear_maps import transposed, vjp
from lrptrain.relevance.propagation.operation_rules import (
    Shares,
    by_jacobian,
    halves,
    lrp_rules,
    product,
    reduced_axes,
    repeat_values,
    selected,
    shape_back,
    single_output,
    sum_operands,
    weighted_call,
)
from lrptrain.relevance.propagation.pixels import Bound, bounds, with_first_rule
from lrptrain.relevance.propagation.propagator import Propagator, only_input
from lrptrain.relevance.tape.functions import ALONG, AVERAGES, MIXTURES, PRODUCTS, SIZES
from lrptrain.relevance.tape.nodes import Node, Value, map_nested, unsupported


def add(
    propagator: Propagator, node: Node, relevance: OutputRelevance, *, normalised: bool, stabiliser: float
) -> InputRelevance:
    """Sums and differences; a constant is an operand like any other, and its share goes nowhere."""
    part = single_output(relevance)
    operands, (first, second) = zip(*sum_operands(node, part), strict=True)
    # An additive mask of -inf carries no relevance, and inf * 0 must not make it NaN.
    shares = rules.proportional(part, (rules.bounded(first), rules.bounded(second)), stabiliser)
    if normalised:
        shares = rules.rescale(part, shares, propagator.total(node), stabiliser)
    return [shape_back(v, share) for v, share in zip(operands, shares, strict=True) if isinstance(v, Value)]


def affine(
    propagator: Propagator, node: Node, relevance: OutputRelevance, *, zplus: bool, stabiliser: float
) -> InputRelevance:
    """Linear layers and convolutions; the patch embedding takes the z^B rule with the image's own bounds."""
    part, value, x, weight, bias, forward, transpose = weighted_call(node, relevance)
    if zplus and node.name == "linear" and not (stabiliser or torch.is_grad_enabled()):
        y = node.outputs[0].tensor
        output = (y, bias) if y.dtype == part.dtype else (forward(x, weight), None)
        yield value, zplus_of_layer(part, x, weight, *output)
        return
    if node in propagator.patch_embedding:  # of images, or of a single one without an axis of samples
        low = x.amin((-3, -2, -1), keepdim=True)
        high = x.amax((-3, -2, -1), keepdim=True)
        yield value, rules.zbox(part, x, low, high, weight, forward, transpose, stabiliser)
    elif zplus:
        yield value, rules.zplus(part, x, weight, forward, transpose, stabiliser)
    else:
        yield value, rules.alpha1_beta0(part, x, weight, forward, transpose, stabiliser)


def mixed(propagator: Propagator, node: Node, relevance: OutputRelevance, *, of_size: bool = False) -> InputRelevance:
    """Means and other sums of entries with fixed weights, by the positive numbers (z+ rule) or by absolute values."""
    part = single_output(relevance)
    if _has_negative_weights(node):
        raise unsupported(node.name, node.path, "adds entries with negative weights, for which this rule is not made")
    if node.name in ("mean", "sum"):
        reduced_axes(propagator, node)
    if node.name in ALONG | AVERAGES:
        propagator.axis(node.outputs[0])

    def counted(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        return x.to(part.dtype).abs() if of_size else x.to(part.dtype).clamp(min=0)

    sizes = [counted(value.tensor) for value in node.inputs]
    # What activations are added to may be a constant: its share goes nowhere.
    args, kwargs = map_nested((node.args, node.kwargs), Tensor, counted)
    of_sizes = partial(repeat_values, replace(node, args=args, kwargs=kwargs))
    (total,) = of_sizes(*sizes)
    backs = vjp(of_sizes, sizes, [rules.safe_divide(part, total)])
    for value, size, back in zip(node.inputs, sizes, backs, strict=True):
        assert back is not None
        yield value, size * back


def _has_negative_weights(node: Node) -> bool:
    if node.name == "index_add":
        return bool(node.kwargs.get("alpha", 1) < 0)
    return node.name in ("interpolate", "upsample") and node.argument(3, "mode") == "bicubic"


def alpha_beta_rule(
    propagator: Propagator, node: Node, relevance: OutputRelevance, *, alpha: float, beta: float, bias: bool = False
) -> InputRelevance:
    """Linear layers and convolutions by the alpha-beta rule; the bias takes its share, or none."""
    part, value, x, weight, constant, forward, transpose = weighted_call(node, relevance)
    y = node.outputs[0].tensor
    zplus = alpha == 1 and not beta and y.dtype == part.dtype
    if zplus and node.name == "linear" and not torch.is_grad_enabled():
        yield value, zplus_of_layer(part, x, weight, y, constant, takes=bias)
        return
    share_of_bias = constant.to(part.dtype) if bias and constant is not None else None
    yield value, rules.alpha_beta(part, x, weight, alpha, beta, forward, transpose, share_of_bias)


def zbox_rule(
    propagator: Propagator, node: Node, relevance: OutputRelevance, *, low: Bound, high: Bound
) -> InputRelevance:
    """The z^B rule for a layer that reads a bounded input."""
    part, value, x, weight, _, forward, transpose = weighted_call(node, relevance)
    lowest, highest = (end.to(part.dtype) for end in bounds(propagator, node, value, low, high))
    yield value, rules.zbox(part, x, lowest, highest, weight, forward, transpose)


def _by_size(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Share sums by absolute values; a constant takes its share, unless it shifts pixels before a layer."""
    part = single_output(relevance)
    operands = sum_operands(node, part)
    if node.outputs[0] in propagator.pixels[1]:
        return [shape_back(value, part) for value in node.inputs]
    shares = rules.by_size(part, tuple(rules.bounded(x) for _, x in operands))
    pairs = zip(operands, shares, strict=True)
    return [shape_back(value, share) for (value, _), share in pairs if isinstance(value, Value)]


def _by_sign(
    propagator: Propagator,
    node: Node,
    part: Tensor,
    a: Tensor,
    b: Tensor,
    multiply: rules.Linear,
    *,
    alpha: float,
    beta: float,
) -> Shares:
    return rules.alpha_beta_of_product(part, a, b, alpha, beta, (multiply, *_transposes(node, multiply, a, b)))


def _transposes(node: Node, multiplied: rules.Linear, a: Tensor, b: Tensor) -> tuple[rules.Linear, rules.Linear]:
    """The transposes of a product to its two factors, each with the other factor as its second argument."""
    if node.name != "einsum":
        return (lambda s, y: s @ y.mT), (lambda s, x: x.mT @ s)
    return (
        lambda s, y: transposed(lambda x: multiplied(x, y), a, s),
        lambda s, x: transposed(lambda y: multiplied(x, y), b, s),
    )


def _positive(sums: RuleFunction, weighted: RuleFunction, mixing: RuleFunction) -> dict[str, RuleFunction]:
    means = dict.fromkeys(AVERAGES | MIXTURES | {"mean", "sum"}, mixing)
    return {**lrp_rules(sums, weighted, mixing), **means, **dict.fromkeys(SIZES, by_jacobian)}


def alpha_beta_composite(alpha: float, beta: float, bias: bool, first: RuleFunction | None = None) -> Composite:
    """Bach et al. 2015, eq. 60: positive contributions count alpha, negative ones -beta; sums by absolute values.

    The bias is a contribution if `bias`, as in the paper; `first` is the rule of the layers that read pixels.
    """
    weighted = partial(alpha_beta_rule, alpha=alpha, beta=beta, bias=bias)
    dense = weighted if first is None else with_first_rule(weighted, first)
    by_name = _positive(_by_size, dense, partial(mixed, of_size=True))
    by_name.update(
        dict.fromkeys(PRODUCTS, partial(product, constant=dense, shared=partial(_by_sign, alpha=alpha, beta=beta)))
    )
    return Composite(by_name, name="alpha_beta", by_queries=True)


def chefer_composite(stabiliser: float = 0.0) -> Composite:
    """Chefer, Gur, Wolf, CVPR 2021: z+, halved products, rescaled sums; their code adds 1e-9 to denominators."""
    return _stabilised("chefer", stabiliser, normalised=True, zplus=True)


def split_alpha_beta_composite(stabiliser: float = 0.0) -> Composite:
    """The LRP baseline of their code: x+W+ and x-W- are each divided by their own sum; sums are not rescaled."""
    return _stabilised("split_alpha_beta", stabiliser, normalised=False, zplus=False)


def _stabilised(name: str, stabiliser: float, *, normalised: bool, zplus: bool) -> Composite:
    rules.check_not_negative("stabiliser", stabiliser)
    weighted = partial(affine, zplus=zplus, stabiliser=stabiliser)
    plain = _positive(partial(add, normalised=normalised, stabiliser=stabiliser), weighted, mixed)
    if not stabiliser:
        # Sums are rescaled over a whole sample. The one in an attention adds a mask that only blocks, which takes no
        # share of relevance, so that there is nothing to rescale.
        return Composite(plain, name=name, by_queries=True)
    products = partial(product, constant=weighted, shared=partial(halves, stabiliser=stabiliser))
    picked = partial(selected, stabiliser=stabiliser)
    stabilised = {**dict.fromkeys(PRODUCTS, products), **dict.fromkeys(("getitem", "select", "index_select"), picked)}
    stabilised["softmax"] = partial(_scores, stabiliser=stabiliser)
    return Composite({**plain, **stabilised}, name=name, stabiliser=stabiliser)


def _scores(propagator: Propagator, node: Node, relevance: OutputRelevance, *, stabiliser: float) -> InputRelevance:
    """A softmax passes relevance; the published code for texts has added a mask before it, be it of zeros."""
    part = single_output(relevance)
    for value in only_input(node):
        producer = propagator.producer(value)
        if propagator.tape.token_ids is None or (producer is not None and producer.name == "add"):
            yield value, part
        else:
            x = value.tensor.to(part.dtype)
            yield value, x * rules.safe_divide(part, x, stabiliser)
