"""The rules of the literature as objects that a user composes; `lrptrain.rules` is their public place.

Each of them passes relevance of an operation's outputs to its inputs, whichever method asks. A name map gives the
operations of a module the rules that are meant for them: linear layers, norms, activations.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch

from lrptrain.relevance.propagation import rules
from lrptrain.relevance.propagation.composite import InputRelevance, OutputRelevance, Rule, RuleFunction
from lrptrain.relevance.propagation.operation_rules import by_jacobian, multiply, product, weighted_call
from lrptrain.relevance.propagation.pixels import Bound
from lrptrain.relevance.propagation.positive_composites import alpha_beta_rule, zbox_rule
from lrptrain.relevance.propagation.propagator import Propagator, unchanged
from lrptrain.relevance.propagation.signed_composites import fixed_rule, signed_linear_rule, softmax_rule, sum_rule
from lrptrain.relevance.tape.functions import AVERAGES, DENSE, ELEMENTWISE, NORMALISATIONS, PRODUCTS, SUMS
from lrptrain.relevance.tape.nodes import Node, unsupported
from lrptrain.relevance.types import unknown_name

# Operations with a weight; a product of two activations among them is halved between the two.
WEIGHTED_OPERATIONS = DENSE | PRODUCTS


def epsilon(epsilon: float = 1e-6) -> Rule:
    """Return the epsilon rule (Bach et al. 2015, eq. 58): R_i = sum_o x_i w_oi / (y_o + epsilon sign(y_o)) R_o.

    In a type map it also serves sums, and other differentiable operations by their Jacobian J:
    R_i = x_i sum_o J_oi R_o / y_o. That conserves relevance where the operation is linear.

    Args:
        epsilon: Added to the size of every denominator; not negative.
    """
    rules.check_not_negative("epsilon", epsilon)
    return Rule("epsilon", partial(_epsilon, stabiliser=epsilon), WEIGHTED_OPERATIONS)


def gamma(gamma: float = 0.25) -> Rule:
    """Return the gamma rule (Montavon et al. 2019): contributions of the output's own sign count 1 + gamma.

    Args:
        gamma: How much they are favoured; not negative. 0 is the epsilon rule with epsilon = 0.
    """
    rules.check_not_negative("gamma", gamma)
    return _weighted("gamma", partial(signed_linear_rule, stabiliser=0.0, gain=gamma))


def zplus(bias: bool = False) -> Rule:
    """Return the z+ rule (Montavon et al. 2017): relevance follows the positive contributions.

    Args:
        bias: Whether a positive bias is a contribution, of which the share goes nowhere; otherwise it takes none.
    """
    return _weighted("zplus", partial(alpha_beta_rule, alpha=1.0, beta=0.0, bias=bias))


def alpha_beta(alpha: float = 2.0, beta: float = 1.0, bias: bool = False) -> Rule:
    """Return the alpha-beta rule (Bach et al. 2015, eq. 60): positive contributions count alpha, others -beta.

    Args:
        alpha: Weight of the positive contributions.
        beta: Weight of the negative ones, not negative; alpha - beta = 1.
        bias: Whether the bias is a contribution, as in the paper and in zennit; otherwise it takes no share.

    Raises:
        ValueError: If alpha - beta is not 1, or beta negative.
    """
    check_alpha_beta(alpha, beta)
    return _weighted("alpha_beta", partial(alpha_beta_rule, alpha=alpha, beta=beta, bias=bias))


def check_alpha_beta(alpha: float, beta: float) -> None:
    """Raise if the weights do not conserve relevance."""
    rules.check_not_negative("beta", beta)
    if not abs(alpha - beta - 1) <= 1e-9:
        raise ValueError(f"alpha - beta must be 1, so that relevance is conserved; got {alpha} - {beta}")


def zbox(low: Bound = None, high: Bound = None) -> Rule:
    """Return the z^B rule (Montavon et al. 2017, eq. 15) for a layer that reads a bounded input, such as pixels.

    Args:
        low: Smallest value that the input can have, or one per channel (a tensor or a sequence); None for the minimum
            of every sample and channel.
        high: Largest value that the input can have, likewise.
    """
    return _weighted("zbox", partial(zbox_rule, low=low, high=high))


PatchRule = Literal["zbox", "wsquare", "flat"]


def first_rule(name: PatchRule | None, low: Bound = None, high: Bound = None) -> Rule | None:
    """Return the rule of the layers that read pixels by its name."""
    by_name: dict[str, Callable[[], Rule]] = {"zbox": partial(zbox, low, high), "wsquare": wsquare, "flat": flat}
    if name is not None and name not in by_name:
        raise ValueError(unknown_name("patch_rule", name, tuple(by_name)))
    if name != "zbox" and not (low is None and high is None):
        raise ValueError(f"low and high are bounds for patch_rule='zbox', not for {name!r}")
    return None if name is None else by_name[name]()


def wsquare() -> Rule:
    """Return the w^2 rule (Montavon et al. 2017, eq. 12): relevance is split by the squared weights."""
    return _weighted("wsquare", partial(_by_weights, power=2))


def flat() -> Rule:
    """Return the flat rule (Lapuschkin et al. 2019): every input that an output reads gets the same."""
    return _weighted("flat", partial(_by_weights, power=0))


def uniform() -> Rule:
    """Return the uniform rule (Achtibat et al. 2024): a product of two activations gives half to each of them."""
    exact = partial(signed_linear_rule, stabiliser=0.0, gain=0.0)
    return Rule("uniform", partial(_uniform, constant=exact), PRODUCTS | {"mul"})


def norm() -> Rule:
    """Return the rule for norms and averages: exact proportions, with the denominators of norms held fixed.

    See Achtibat et al. 2024, section 3.3. The bias takes its share.
    """
    return Rule("norm", fixed_rule, NORMALISATIONS | AVERAGES | {"mean", "sum"})


def softmax() -> Rule:
    """Return the rule for a softmax linearised at its input (Achtibat et al. 2024, proposition 3.1)."""
    return Rule("softmax", softmax_rule, frozenset({"softmax"}))


def pass_() -> Rule:
    """Return the rule that passes relevance as it is, for activations, norms and all that keeps the shape."""
    return Rule("pass", unchanged, frozenset(ELEMENTWISE))


def _weighted(name: str, function: RuleFunction) -> Rule:
    return Rule(name, partial(_of_weight, name=name, weighted=function), WEIGHTED_OPERATIONS)


def _of_weight(
    propagator: Propagator, node: Node, relevance: OutputRelevance, *, name: str, weighted: RuleFunction
) -> InputRelevance:
    if node.name in PRODUCTS:
        return product(propagator, node, relevance, constant=weighted)
    if node.name in DENSE:
        return weighted(propagator, node, relevance)
    raise unsupported(node.name, node.path, f"has no weight, which the rule {name} needs")


def _epsilon(propagator: Propagator, node: Node, relevance: OutputRelevance, *, stabiliser: float) -> InputRelevance:
    if node.name in WEIGHTED_OPERATIONS:
        weighted = partial(signed_linear_rule, stabiliser=stabiliser, gain=0.0)
        return _of_weight(propagator, node, relevance, name="epsilon", weighted=weighted)
    if node.name in SUMS:
        return sum_rule(propagator, node, relevance, stabiliser=stabiliser)
    return by_jacobian(propagator, node, relevance, stabiliser=stabiliser)


def _by_weights(propagator: Propagator, node: Node, relevance: OutputRelevance, *, power: int) -> InputRelevance:
    """Split relevance by |w|^power, whatever the input: 2 for the w^2 rule, 0 for the flat rule."""
    part, value, x, weight, _, forward, transpose = weighted_call(node, relevance)
    weight = weight.square() if power else torch.ones_like(weight)
    ones = torch.ones_like(x)
    yield value, transpose(rules.safe_divide(part, forward(ones, weight)), weight)


def _uniform(
    propagator: Propagator, node: Node, relevance: OutputRelevance, *, constant: RuleFunction
) -> InputRelevance:
    if node.name == "mul":
        return multiply(propagator, node, relevance)
    return product(propagator, node, relevance, constant=constant)
