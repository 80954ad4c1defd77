"""Composites whose relevance keeps its sign: the epsilon and gamma rules, and AttnLRP in both of its forms.

In gradient form a rule passes relevance per unit of activation, g = R / x: the gradient of a network whose
denominators, slopes and second factors are held fixed. Relevance is then g times the activation, at any place.
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from lrptrain.relevance.fast.kernels import FUSED_ATTENTION
from lrptrain.relevance.propagation import rules
from lrptrain.relevance.propagation.composite import Composite, InputRelevance, OutputRelevance, RuleFunction
from lrptrain.relevance.propagation.linear_maps import linear_map, transpose_of, transposed, vjp
from lrptrain.relevance.propagation.normalisation import frozen
from lrptrain.relevance.propagation.operation_rules import (
    Shares,
    by_jacobian,
    carriers,
    check_samples,
    entries,
    finite,
    lrp_rules,
    passing_rules,
    product,
    quotient,
    reduced_axes,
    resolve,
    shape_back,
    single_output,
    sum_factors,
    sum_operands,
    weighted_call,
)
from lrptrain.relevance.propagation.propagator import Propagator, only_input
from lrptrain.relevance.tape.functions import (
    ALONG,
    AVERAGES,
    COPIES,
    DENSE,
    ELEMENTWISE,
    MIXTURES,
    NORMALISATIONS,
    PRODUCTS,
    SIZES,
    SUMS,
)
from lrptrain.relevance.tape.nodes import Node, Value


def _output(node: Node, like: Tensor) -> Tensor:
    return node.outputs[0].tensor.to(like.dtype)


def signed_linear_rule(
    propagator: Propagator, node: Node, relevance: OutputRelevance, *, stabiliser: float, gain: float
) -> InputRelevance:
    """The epsilon rule, or the gamma rule for a positive gain."""
    part, value, x, weight, _, forward, transpose = weighted_call(node, relevance)
    y = _output(node, part)
    if gain:
        yield value, rules.gamma(part, x, weight, y, gain, forward, transpose)
    else:
        yield value, rules.epsilon(part, x, weight, y, stabiliser, transpose)


def sum_rule(propagator: Propagator, node: Node, relevance: OutputRelevance, *, stabiliser: float) -> InputRelevance:
    """Proportions; exact where a constant is added, so that adding a mask of zeros changes nothing."""
    part = single_output(relevance)
    operands = sum_operands(node, part)
    # A mask of zeros must change nothing, so that nothing is added to the denominator where one operand is a constant.
    stabiliser = stabiliser if all(isinstance(operand, Value) for operand, _ in operands) else 0.0
    y = rules.bounded(_output(node, part))
    share = rules.safe_divide(part, rules.stabilised(y, stabiliser))
    shares = [(value, rules.bounded(x) * share) for value, x in operands if isinstance(value, Value)]
    return [shape_back(value, part_of_operand) for value, part_of_operand in shares]


def softmax_rule(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Achtibat et al. 2024, proposition 3.1: R_x = x (R - p sum R)."""
    part = single_output(relevance)
    # A row of which all scores are -inf has p = NaN, which a model replaces if it continues: it attends to nothing.
    p = _output(node, part)
    nothing = p.isnan()
    p = p.masked_fill(nothing, 0.0)
    dim = node.argument(1, "dim", -1)
    for value in only_input(node):
        # A score of -inf, as an additive mask makes it, has p = 0 and passes nothing; -inf * 0 would be NaN.
        x = rules.bounded(value.tensor.to(part.dtype))
        passed = x * (part - p * part.sum(dim, keepdim=True))
        yield value, passed.masked_fill(nothing | (p == 0), 0.0)


def _fixed_map(propagator: Propagator, node: Node) -> Callable[[Tensor], Tensor]:
    """Averages, sums and norms with a fixed denominator, as linear functions of their input."""
    if node.name in NORMALISATIONS:
        return frozen(node)
    if node.name in ("mean", "sum"):
        reduced_axes(propagator, node)
    return lambda x: node.call(lambda _: x)


def fixed_rule(
    propagator: Propagator, node: Node, relevance: OutputRelevance, *, stabiliser: float = 0.0
) -> InputRelevance:
    """The epsilon rule for such a map; a bias takes its share."""
    part = single_output(relevance)
    share = rules.safe_divide(part, rules.stabilised(_output(node, part), stabiliser))
    for value, per_unit in _through_fixed(propagator, node, [share]):
        yield value, value.tensor.to(part.dtype) * per_unit


def _signed(stabiliser: float, gain: float) -> dict[str, RuleFunction]:
    weighted = partial(signed_linear_rule, stabiliser=stabiliser, gain=gain)
    by_share = partial(by_jacobian, stabiliser=stabiliser)
    return {
        **lrp_rules(partial(sum_rule, stabiliser=stabiliser), weighted, by_share),
        **dict.fromkeys(AVERAGES | {"mean", "sum"}, partial(fixed_rule, stabiliser=stabiliser)),
        **dict.fromkeys(MIXTURES | SIZES, by_share),
    }


def epsilon_composite(epsilon: float) -> Composite:
    """Bach et al. 2015: the epsilon rule for linear layers, sums and means; products are halved, all else passes."""
    return Composite(_signed(epsilon, 0.0), name="epsilon", by_queries=True)


def attnlrp_composite(gamma: float = 0.0, name: str = "attnlrp") -> Composite:
    """Achtibat et al. 2024: exact proportions, the softmax linearised, denominators of norms fixed; gamma in layers."""
    norms: dict[str, RuleFunction] = dict.fromkeys(NORMALISATIONS, fixed_rule)
    softmaxes: dict[str, RuleFunction] = {"softmax": softmax_rule, "log_softmax": by_jacobian}
    rules_by_operation = {**_signed(0.0, gamma), **softmaxes, **norms}
    return Composite(rules_by_operation, name=name, by_queries=True)


# -- Gradient form ----------------------------------------------------------------------------------------------------


# With g = R / x at the inputs and g = R / y at the output, the rules become products without a division:
#     y = W x           R_i = sum_o x_i w_oi R_o / y_o      ->  g_i = sum_o w_oi g_o
#     y = f(x)          R passes                            ->  g_x = g_y f(x) / x
#     y = a * b         R is halved                         ->  g_a = g_y b / 2
#     p = softmax(x)    R_x = x (R - p sum R)               ->  g_x = p g - p sum(p g)
#
# In attention, s = c q k^T, p = softmax(s), o = p v, these are the gradients of the operations themselves, halved at
# each of the two products, so that a fused kernel has them all. With d for its gradients, given g_o at the output:
#     o = p v           g_v = p^T g_o / 2                   =   d_v / 2
#                       g_p = g_o v^T / 2                   =   d_p / 2
#     p = softmax(s)    g_s = p g_p - p sum(p g_p)          =   d_s / 2, since it is linear in g_p
#     s = c q k^T       g_q = c g_s k / 2                   =   d_q / 4, and g_k = d_k / 4
# A mask that blocks keys adds a constant to s, and passes g_s as it is.


def _through_weight(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    part = single_output(relevance)
    value, weight, _, forward = linear_map(node)
    if node.name == "linear":  # without its input, which would have to be made again
        yield value, part @ weight.to(part.dtype)
    else:
        yield value, transpose_of(node, value.tensor.to(part.dtype), forward)(part, weight.to(part.dtype))


def _half_gradients(
    propagator: Propagator, node: Node, part: Tensor, a: Tensor, b: Tensor, multiply: rules.Linear
) -> Shares:
    if node.name == "einsum":
        return vjp(multiply, [a, b], [part / 2])
    # In place: a product needs its own result for no gradient.
    return (part @ b.mT).div_(2), (a.mT @ part).div_(2)


def _through_sum(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    part = single_output(relevance)
    operands = (node.argument(0, "input"), node.argument(1, "other"))
    shares = [(v, part if by == 1 else part * by) for v, by in zip(operands, sum_factors(node), strict=True)]
    return [shape_back(value, share) for value, share in shares if isinstance(value, Value)]


def _through_multiplication(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    part = single_output(relevance)
    first = node.argument(0, "input")
    second = node.argument(1, "other")
    values = carriers(propagator, node)
    pairs = ((first, second), (second, first))
    return [
        shape_back(v, part * (resolve(by, part) / len(values)))
        for v, by in pairs
        if isinstance(v, Value) and any(v is value for value in values)
    ]


def _through_division(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    part = single_output(relevance)
    numerator, denominator = quotient(propagator, node)
    yield shape_back(numerator, part / resolve(denominator, part))


def _through_axis(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A linear map along an axis, or the slope of a size, which is its share."""
    propagator.axis(node.outputs[0])
    return entries(propagator, node, relevance)


def _through_softmax(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    part = single_output(relevance)
    p = _output(node, part)
    dim = node.argument(1, "dim", -1)
    # p g - p sum(p g), with one temporary instead of three: it is as large as the attention.
    weighted = p * part
    total = weighted.sum(dim, keepdim=True)
    if bool(total.isnan().any()):  # rows of which all scores are -inf attend to nothing
        p = p.masked_fill(p.isnan(), 0.0)
        weighted = p * part
        total = weighted.sum(dim, keepdim=True)
    for value in only_input(node):
        yield value, weighted.addcmul_(p, total, value=-1)


def _through_attention(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Fused attention, by the gradients of its kernel."""
    part = single_output(relevance)
    attention = propagator.kernel(node)
    check_samples(propagator, attention.nodes[-1])
    with propagator.tape.replaying():
        gradients = attention.gradients(part)
    yield from zip(node.args, (x * share for x, share in zip(gradients, (0.25, 0.25, 0.5), strict=True)), strict=True)


def _through_fixed(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    part = single_output(relevance)
    for value in only_input(node):
        yield value, transposed(_fixed_map(propagator, node), value.tensor.to(part.dtype), part)


def _through_slope(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Multiply by g(x) / x; casts, and the like, pass."""
    part = single_output(relevance)
    for value in only_input(node):
        if node.name in COPIES:
            yield value, part
        else:
            yield value, part * rules.safe_divide(_output(node, part), value.tensor.to(part.dtype))


def per_unit(rule: RuleFunction) -> RuleFunction:
    """Return a rule of relevance as one of relevance per unit: R = g y at the outputs, and g = R / x at the inputs."""

    def through(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
        outputs = zip(node.outputs, relevance, strict=True)
        whole = [None if g is None else g * rules.bounded(value.tensor.to(g.dtype)) for value, g in outputs]
        for value, part in rule(propagator, node, whole):
            yield value, rules.safe_divide(part, value.tensor)

    return through


def in_gradient_form(explicit: Mapping[str, RuleFunction], without_division: Mapping[str, RuleFunction]) -> Composite:
    """Return AttnLRP in gradient form, from its explicit rules and those of them that are written as products.

    The latter are faster, and right where an activation is 0.
    """
    slopes = dict.fromkeys(ELEMENTWISE, _through_slope)  # relevance passes them without a rule
    others = {name: per_unit(rule) for name, rule in explicit.items()}
    return Composite({**slopes, **others, **without_division}, name="attnlrp", by_queries=True)


GRADIENT_FORM = in_gradient_form(
    attnlrp_composite().type_map,
    {
        **passing_rules(entries),
        **dict.fromkeys(DENSE, _through_weight),
        **dict.fromkeys(PRODUCTS, partial(product, constant=_through_weight, shared=_half_gradients)),
        **dict.fromkeys((*NORMALISATIONS, "mean", "sum", *AVERAGES), _through_fixed),
        **dict.fromkeys(MIXTURES, entries),
        **dict.fromkeys(ALONG, _through_axis),
        **dict.fromkeys(SUMS, _through_sum),
        "mul": _through_multiplication,
        "div": _through_division,
        "nan_to_num": finite,
        "softmax": _through_softmax,
        "log_softmax": entries,
        FUSED_ATTENTION: _through_attention,
    },
)
