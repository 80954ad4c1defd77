"""Epsilon, gamma and AttnLRP: against a network with detached denominators, captum, and each other."""

import warnings
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS, randomised
from small_models import Small, patches
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain.relevance.methods import lrp
from lrptrain.relevance.propagation.signed_composites import attnlrp_composite, in_gradient_form


def detached_slope(function, x: Tensor) -> Tensor:
    return x * (function(x) / x).detach()


def detached_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    deviation = (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt().detach()
    return norm.weight * (x - x.mean(-1, keepdim=True)) / deviation + norm.bias


def half(product: Tensor) -> Tensor:
    return product / 2 + product.detach() / 2


class Transformer(nn.Module):
    """A pre-LN block on 16 patches; `fixed` computes the same with what AttnLRP holds fixed detached."""

    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24), nn.Linear(8, 8)
        self.first, self.second, self.head = nn.Linear(8, 12), nn.Linear(12, 8), nn.Linear(8, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        self.position = nn.Parameter(torch.zeros(16, 8))
        self.fixed = False
        self.conservative = False  # what CP-LRP holds fixed, too
        randomised(self)

    def norm(self, i: int, x: Tensor) -> Tensor:
        return detached_norm(self.norms[i], x) if self.fixed else self.norms[i](x)  # type: ignore[arg-type]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not self.fixed:
            return F.scaled_dot_product_attention(q, k, v)
        if self.conservative:
            return torch.softmax(q @ k.mT / 8**0.5, -1).detach() @ v
        return half(torch.softmax(half(q @ k.mT) / 8**0.5, -1) @ v)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        tokens = tokens + self.out(self.attend(*self.qkv(self.norm(0, tokens)).chunk(3, -1)))
        hidden = self.first(self.norm(1, tokens))
        tokens = tokens + self.second(detached_slope(F.gelu, hidden) if self.fixed else F.gelu(hidden))
        return self.head(self.norm(2, tokens).mean(1))


@pytest.mark.parametrize("form", ["gradient", "explicit"])
def test_attnlrp_is_input_times_gradient_of_the_network_with_fixed_denominators(form):
    model, x = Transformer(), patches()
    found = lrptrain.attribute(model, x, [0, 1, 2], "attnlrp", form=form)
    model.fixed = True
    x.requires_grad_()
    logits = model(x)
    assert relative_error(found.logits, logits).max() < 1e-12
    (gradient,) = torch.autograd.grad(logits[range(3), [0, 1, 2]].sum(), x)
    assert relative_error(found.input, (x * gradient).sum(1)).max() < 1e-9


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("method", ["attnlrp", "cp_lrp"])
def test_both_forms_agree_on_every_model(name, method):
    recorded = lrptrain.record(KINDS[name].build(True), KINDS[name].inputs())
    maps = [recorded.attribute([0, 3, 4], method, form=form).scores for form in ("gradient", "explicit")]
    assert relative_error(*maps).max() < 1e-6


@pytest.mark.parametrize("name", ["vit", "bert", "deberta_v3", "llama", "hiera"])
def test_products_are_what_follows_from_the_rules_themselves(name, monkeypatch):
    """A rule that is entered for relevance alone serves both forms: none of the products is needed."""
    model, inputs = KINDS[name].build(False), KINDS[name].inputs()
    expected = lrptrain.attribute(model, inputs, [0, 3, 4], "attnlrp").scores
    derived = in_gradient_form(attnlrp_composite().type_map, {})
    monkeypatch.setattr(lrp, "GRADIENT_FORM", derived)
    assert relative_error(lrptrain.attribute(model, inputs, [0, 3, 4], "attnlrp").scores, expected).max() < 1e-6


@pytest.mark.parametrize("form", ["gradient", "explicit"])
def test_cp_lrp_is_input_times_gradient_of_the_network_with_fixed_attention(form):
    model, x = Transformer(), patches()
    found = lrptrain.attribute(model, x, [0, 1, 2], "cp_lrp", form=form)
    model.fixed = model.conservative = True
    x.requires_grad_()
    logits = model(x)
    assert relative_error(found.logits, logits).max() < 1e-12
    (gradient,) = torch.autograd.grad(logits[range(3), [0, 1, 2]].sum(), x)
    assert relative_error(found.input, (x * gradient).sum(1)).max() < 1e-9


class Weighted(nn.Module):
    """Probabilities that are masked, scaled, mixed and multiplied entry by entry before they weigh the values."""

    def __init__(self, fixed: bool):
        super().__init__()
        self.embed, self.qkv, self.pool = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24), nn.Linear(8, 1)
        self.mix, self.head = nn.Linear(16, 16), nn.Linear(8, 4)
        self.fixed = fixed
        randomised(self)

    def probabilities(self, scores: Tensor, dim: int) -> Tensor:
        result = scores.softmax(dim)
        return result.detach() if self.fixed else result

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).chunk(3, -1)
        first = F.dropout(self.probabilities(q @ k.mT, -1), 0.5, training=False)
        weights = self.mix(first.masked_fill(torch.eye(16) > 0, 0.0) - 0.3 * self.probabilities(k @ q.mT, -1))
        tokens = tokens + torch.einsum("bij,bjc->bic", weights, v)
        return self.head((self.probabilities(self.pool(tokens), 1) * tokens).sum(1))


@pytest.mark.parametrize("form", ["gradient", "explicit"])
def test_what_is_made_of_probabilities_is_fixed_in_cp_lrp(form):
    """Input times gradient of the model with detached softmaxes, which is linear."""
    x = patches()
    found = lrptrain.attribute(Weighted(fixed=False), x, [0, 1, 2], "cp_lrp", form=form)
    expected = lrptrain.attribute(Weighted(fixed=True), x, [0, 1, 2], "input_x_gradient")
    assert relative_error(found.scores, expected.scores).max() < 1e-9


def test_cp_lrp_refuses_an_output_that_a_softmax_makes():
    with pytest.raises(lrptrain.UnsupportedMethodError, match="by softmaxes only"):
        lrptrain.attribute(nn.Sequential(Transformer(), nn.Softmax(-1)), patches(), 0, "cp_lrp")


class Perceptron(nn.Module):
    """Two dense layers on the pixels of an image."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(9, 7), nn.Linear(7, 3)
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x.flatten(1))))


@pytest.mark.parametrize(("method", "options"), [("epsilon_lrp", {"epsilon": 0.05}), ("gamma_lrp", {"gamma": 0.3})])
def test_of_a_perceptron_as_captum_has_it(method, options):
    from captum.attr import LRP
    from captum.attr._utils.lrp_rules import EpsilonRule, GammaRule

    class Plain(nn.Module):
        def __init__(self, model: Perceptron):
            super().__init__()
            self.first, self.relu, self.second = model.first, nn.ReLU(), model.second

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.relu(self.first(x)))

    model = Perceptron()
    for layer in (model.first, model.second):
        nn.init.zeros_(layer.bias)
    x = patches(4)[:, :1, :3, :3].abs().contiguous()
    if method == "gamma_lrp":  # captum's gamma rule is for positive outputs
        target = model(x).argmax(1)
        assert (model(x).amax(1) > 0).all()
    else:
        target = torch.tensor([0, 1, 2, 0])
    plain = Plain(model)
    for layer in (plain.first, plain.second):
        layer.rule = EpsilonRule(epsilon=0.05) if method == "epsilon_lrp" else GammaRule(gamma=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = LRP(plain).attribute(x.flatten(1), target=target)
    found = lrptrain.attribute(
        model, x, target, method, layout=lrptrain.TokenLayout(9, tuple(range(9)), (3, 3)), **options
    )
    assert relative_error(found.scores, expected).max() < 1e-6


@pytest.mark.parametrize(
    ("method", "options"),
    [("epsilon_lrp", {"epsilon": -1.0}), ("gamma_lrp", {"gamma": -0.1}), ("attnlrp", {"form": "gradients"})],
)
def test_wrong_options(method, options):
    with pytest.raises(ValueError, match=r"must not be negative|did you mean gradient"):
        lrptrain.attribute(Transformer(), patches(), 0, method, **options)


@pytest.mark.parametrize("method", ["attnlrp", "gamma_lrp", "epsilon_lrp", "lrp", "transformer_attribution"])
@pytest.mark.parametrize("function", [lambda x: 0 - x, lambda x: torch.rsub(x, 0), lambda x: torch.sub(0 * x, x)])
def test_a_constant_less_an_activation_is_its_negative(method, function):
    options: dict[str, Any] = {"epsilon": 0.0} if method == "epsilon_lrp" else {}
    maps = [lrptrain.attribute(Small(after=f), patches(), 1, method, **options).scores for f in (function, torch.neg)]
    assert relative_error(*maps).max() < 1e-9


@pytest.mark.parametrize("form", ["gradient", "explicit"])
def test_one_less_an_activation_leaves_the_ones_share_out(form):
    """R_x = -x / (1 - x) R, of which the gradient form is -g: input times gradient, for linear models."""
    model, x = Small(after=lambda tokens: 1 - 2 * tokens), patches()
    plain = Small(after=lambda tokens: torch.add(torch.ones(()).double(), tokens, alpha=-2))
    maps = [lrptrain.attribute(m, x, 1, "attnlrp", form=form).scores for m in (model, plain)]
    assert relative_error(*maps).max() < 1e-9
