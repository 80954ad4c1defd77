"""Every rule that users compose, on a layer of a recorded model, against its textbook formula entry by entry."""

from collections.abc import Callable

import pytest
import torch
from golden_cases import relative_error
from small_models import Block, Small, patches, random
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain import rules
from lrptrain.relevance.passes.recording import run_on_tape
from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.tape.canonizers import collapse, unflatten

SHAPE = (3, 2, 5)


WEIGHT, BIAS = random(4, 5, seed=1), random(4, seed=2)


def passed(rule: Callable, function: Callable[[Tensor], Tensor], x: Tensor, relevance: Tensor) -> Tensor:
    """What a rule gives to the input of a model's only operation."""
    tape, output = run_on_tape(Block(function), x)
    value = tape.value_of(output)
    assert value is not None
    assert tape.root is not None
    tape.keep_only(value)
    unflatten(tape)
    collapse(tape, len(x))
    (node,) = tape.nodes
    with torch.no_grad():
        ((source, found),) = rule(Propagator(tape, len(x)), node, [relevance])
    assert source is tape.root
    return found


def linear(x: Tensor) -> Tensor:
    return F.linear(x, WEIGHT, BIAS)


def split(relevance: Tensor, parts: Tensor, total: Tensor | None = None) -> Tensor:
    """R_i = sum_o parts_oi / total_o R_o; the parts' own sum by default; nothing where it is 0."""
    total = parts.sum(-1) if total is None else total
    shares = torch.where(total == 0, 0.0, relevance / torch.where(total == 0, 1.0, total))
    return (parts * shares[..., None]).sum(-2)


def contributions(x: Tensor) -> Tensor:
    """x_i w_oi, [..., out, in]."""
    return x[..., None, :] * WEIGHT


def alpha_beta(x: Tensor, relevance: Tensor, alpha: float, beta: float) -> Tensor:
    parts = contributions(x)
    return alpha * split(relevance, parts.clamp(min=0)) - beta * split(relevance, parts.clamp(max=0))


def gamma(x: Tensor, relevance: Tensor, gain: float) -> Tensor:
    y, parts = linear(x), contributions(x)
    favoured = parts * (1 + gain * (parts.sign() == y.sign()[..., None]).double())
    bias = BIAS * (1 + gain * (BIAS.sign() == y.sign()).double())
    return split(relevance, favoured, favoured.sum(-1) + bias)


def zbox(x: Tensor, relevance: Tensor, low: Tensor, high: Tensor) -> Tensor:
    parts = contributions(x) - low[..., None, :] * WEIGHT.clamp(min=0) - high[..., None, :] * WEIGHT.clamp(max=0)
    return split(relevance, parts)


TEXTBOOK: dict[str, tuple[Callable, Callable[[Tensor, Tensor], Tensor]]] = {
    "epsilon": (
        rules.epsilon(0.125),
        lambda x, r: split(r, contributions(x), linear(x) + 0.125 * linear(x).sign()),
    ),
    "epsilon, of 0": (rules.epsilon(0.0), lambda x, r: split(r, contributions(x), linear(x))),
    "gamma": (rules.gamma(0.3), lambda x, r: gamma(x, r, 0.3)),
    "gamma, by default": (rules.gamma(), lambda x, r: gamma(x, r, 0.25)),
    "z+": (rules.zplus(), lambda x, r: alpha_beta(x, r, 1.0, 0.0)),
    "alpha-beta": (rules.alpha_beta(), lambda x, r: alpha_beta(x, r, 2.0, 1.0)),
    "alpha-beta of 1.5": (rules.alpha_beta(1.5, 0.5), lambda x, r: alpha_beta(x, r, 1.5, 0.5)),
    "z^B, given": (
        rules.zbox(-4.0, 5.0),
        lambda x, r: zbox(x, r, torch.full_like(x, -4.0), torch.full_like(x, 5.0)),
    ),
    "z^B, of each sample": (
        rules.zbox(),
        lambda x, r: zbox(x, r, x.amin((1, 2), True).expand_as(x), x.amax((1, 2), True).expand_as(x)),
    ),
    "w squared": (rules.wsquare(), lambda x, r: split(r, WEIGHT.square().expand(3, 2, 4, 5))),
    "flat": (rules.flat(), lambda x, r: split(r, torch.ones(3, 2, 4, 5, dtype=torch.float64))),
}


def matmul(x: Tensor) -> Tensor:
    """The layer as a product with a constant, without its bias."""
    return x @ WEIGHT.T


WITHOUT_BIAS = [name for name in TEXTBOOK if not name.startswith(("epsilon", "gamma"))]  # of those it takes a share
LAYERS = [*((linear, name) for name in TEXTBOOK), *((matmul, name) for name in WITHOUT_BIAS)]


@pytest.mark.parametrize(("function", "name"), LAYERS)
def test_rules_of_linear_layers(function, name):
    rule, expected = TEXTBOOK[name]
    x, relevance = random(*SHAPE, seed=3), random(3, 2, 4, seed=4)
    torch.testing.assert_close(passed(rule, function, x, relevance), expected(x, relevance), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["z+", "alpha-beta", "z^B, of each sample", "w squared", "flat"])
def test_rules_without_a_bias_conserve_relevance(name):
    """Where every output has a positive and a negative contribution."""
    x, relevance = random(*SHAPE, seed=3), random(3, 2, 4, seed=4)
    parts = contributions(x)
    relevance = torch.where((parts > 0).any(-1) & (parts < 0).any(-1), relevance, 0.0)
    assert relevance.count_nonzero() > 12
    found = passed(TEXTBOOK[name][0], linear, x, relevance)
    torch.testing.assert_close(found.sum(), relevance.sum())


def test_z_box_takes_the_bounds_of_every_sample_wherever_the_samples_are():
    """Tokens of two samples, merged into one axis: [3 samples x 2 tokens, 5]."""
    x, relevance = random(*SHAPE, seed=3), random(3, 2, 4, seed=4)
    model = Block(lambda x: F.linear(x.flatten(0, 1).relu(), WEIGHT))
    tape, _ = run_on_tape(model, x)
    node = tape.nodes[-1]
    ((_, found),) = rules.zbox()(Propagator(tape, 3), node, [relevance.flatten(0, 1)])
    low, high = (extreme((1, 2), True).expand_as(x) for extreme in (x.relu().amin, x.relu().amax))
    torch.testing.assert_close(found, zbox(x.relu(), relevance, low, high).flatten(0, 1))


def test_convolutions():
    x, weight, relevance = random(2, 3, 4, 4), random(6, 3, 2, 2, seed=1), random(2, 6, 2, 2, seed=2)
    patches_of = F.unfold(x, 2, stride=2).transpose(1, 2)  # [2, 4 places, 12]
    parts = (patches_of[:, :, None] * weight.flatten(1)).clamp(min=0)
    by_place = split(relevance.flatten(2).transpose(1, 2), parts)
    expected = F.fold(by_place.transpose(1, 2), (4, 4), 2, stride=2)
    found = passed(rules.zplus(), lambda x: F.conv2d(x, weight, stride=2), x, relevance)
    torch.testing.assert_close(found, expected)


def test_rules_of_norms_and_averages():
    x, relevance, weight = random(*SHAPE, seed=3), random(*SHAPE, seed=4), random(5, seed=5)
    y = F.layer_norm(x, (5,), weight)
    deviation = (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    jacobian = (torch.eye(5, dtype=x.dtype) - 1 / 5) * weight[:, None] / deviation[..., None]
    expected = split(relevance, jacobian * x[..., None, :], y)
    found = passed(rules.norm(), lambda x: F.layer_norm(x, (5,), weight), x, relevance)
    torch.testing.assert_close(found, expected)
    mean = passed(rules.norm(), lambda x: x.mean(1), x, relevance[:, 0])
    torch.testing.assert_close(mean, x / x.sum(1, keepdim=True) * relevance[:, :1])


def test_the_rule_of_a_softmax():
    x, relevance = random(*SHAPE, seed=3), random(*SHAPE, seed=4)
    p = x.softmax(-1)
    jacobian = torch.diag_embed(p) - p[..., None] * p[..., None, :]
    # Linearised at x: R_i = x_i sum_o J_oi R_o / p_o
    expected = x * (jacobian * (relevance / p)[..., None]).sum(-2)
    torch.testing.assert_close(passed(rules.softmax(), lambda x: x.softmax(-1), x, relevance), expected)


def test_passing():
    x, relevance = random(*SHAPE, seed=3), random(*SHAPE, seed=4)
    assert torch.equal(passed(rules.pass_(), F.gelu, x, relevance), relevance)
    with pytest.raises(lrptrain.UnsupportedOperationError, match="changes the shape"):
        passed(rules.pass_(), lambda x: x.mean(1), x, relevance[:, 0])


@pytest.mark.parametrize("epsilon", [0.0, 0.125])
def test_epsilon_by_the_jacobian(epsilon):
    """cumsum over 5 numbers is a lower triangular matrix of ones."""
    x, relevance = random(*SHAPE, seed=3), random(*SHAPE, seed=4)
    y, lower = x.cumsum(-1), torch.ones(5, 5, dtype=torch.float64).tril()
    expected = split(relevance, lower * x[..., None, :], y + epsilon * y.sign())
    torch.testing.assert_close(passed(rules.epsilon(epsilon), lambda x: x.cumsum(-1), x, relevance), expected)


def test_epsilon_of_several_outputs_and_of_a_call_in_place():
    x, relevance = random(3, 4, seed=3), random(3, 2, seed=4)
    tape, _ = run_on_tape(Block(lambda x: x.tensor_split(2, 1)), x)
    (node,) = tape.nodes
    ((_, found),) = rules.epsilon(0.0)(Propagator(tape, 3), node, [None, relevance])
    torch.testing.assert_close(found, torch.cat([torch.zeros(3, 2), relevance], 1))
    in_place = passed(rules.epsilon(0.0), lambda x: x.cumsum_(1), x.clone(), torch.ones_like(x))
    torch.testing.assert_close(in_place.sum(1), torch.full((3,), 4.0, dtype=torch.float64))


def test_epsilon_of_a_sum_and_uniform_products():
    class Gate(nn.Module):
        """u + v and u v of two halves of the input."""

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            u, v = x.chunk(2, -1)
            return u + v, u * v, u @ v.mT

    x = random(3, 2, 6, seed=3)
    tape, _ = run_on_tape(Gate(), x)
    add, mul, matmul = (next(node for node in tape.nodes if node.name == name) for name in ("add", "mul", "matmul"))
    u, v = x.chunk(2, -1)
    propagator, relevance = Propagator(tape, 3), random(3, 2, 3, seed=4)
    found = [part for _, part in rules.epsilon(0.125)(propagator, add, [relevance])]
    total = u + v + 0.125 * (u + v).sign()
    torch.testing.assert_close(found, [relevance * u / total, relevance * v / total])
    halves = [part for _, part in rules.uniform()(propagator, mul, [relevance])]
    torch.testing.assert_close(halves, [relevance / 2, relevance / 2])
    product = random(3, 2, 2, seed=5)
    for rule in (rules.uniform(), rules.gamma(0.5), rules.zplus(), rules.epsilon()):
        first, second = (part for _, part in rule(propagator, matmul, [product]))
        share = product / (u @ v.mT)
        torch.testing.assert_close(first, u * (share @ v) / 2)
        torch.testing.assert_close(second.mT, v * (share.mT @ u) / 2)


def test_uniform_of_a_constant_is_the_exact_proportion():
    x, relevance = random(*SHAPE, seed=3), random(3, 2, 4, seed=4)
    found = passed(rules.uniform(), lambda x: x @ WEIGHT.T, x, relevance)
    torch.testing.assert_close(found, split(relevance, contributions(x)))


@pytest.mark.parametrize("rule", [rules.gamma(), rules.zplus(), rules.zbox(), rules.flat(), rules.wsquare()])
def test_rules_of_weights_need_one(rule):
    with pytest.raises(
        lrptrain.UnsupportedOperationError, match=f"gelu.*has no weight, which the rule {rule.name} needs"
    ):
        passed(rule, F.gelu, random(*SHAPE), random(*SHAPE))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rules.epsilon(-1.0), "epsilon must not be negative"),
        (lambda: rules.gamma(-0.1), "gamma must not be negative"),
        (lambda: rules.gamma(float("nan")), "gamma must not be negative"),
        (lambda: rules.alpha_beta(0.5, -0.5), "beta must not be negative"),
        (lambda: rules.alpha_beta(2.0, 2.0), "alpha - beta must be 1"),
    ],
)
def test_wrong_numbers(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("rule", [rules.epsilon(0.0), rules.gamma(0.0)])
def test_what_the_methods_do_themselves_can_be_composed(rule):
    """AttnLRP with the epsilon rule, or the gamma rule of 0, in all linear layers is AttnLRP."""
    model = Small(between=Block(F.gelu))
    plain = lrptrain.attribute(model, patches(), 1, "attnlrp", form="explicit").scores
    composite = lrptrain.Composite(
        {"mean": rules.norm(), "softmax": rules.softmax(), "gelu": rules.pass_(), "mul": rules.uniform()}, {"*": rule}
    )
    assert (
        relative_error(lrptrain.attribute(model, patches(), 1, "attnlrp", composite=composite).scores, plain).max()
        < 1e-9
    )


def test_alpha_beta_of_a_dead_unit_in_float32():
    """All contributions negative: the positive sum is 0 in algebra and rounding in floats; it passes nothing."""
    x, weight = random(64, 50).abs().float(), -random(1, 50, seed=1).abs().float()
    found = passed(rules.alpha_beta(1.0, 0.0), lambda x: F.linear(x, weight), x, torch.ones(64, 1))
    assert (found == 0).all()


def test_every_public_rule_can_be_made_without_arguments():
    made = [
        getattr(rules, name)() for name in rules.__all__ if name.islower() and not name.endswith(("_rule", "_rules"))
    ]
    assert len(made) == 11
    assert all(isinstance(rule, lrptrain.Rule) and rule.operations for rule in made)
