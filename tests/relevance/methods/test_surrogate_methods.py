"""LIME and KernelSHAP: models whose Shapley values are known, ranks, seeds, and the missing package."""

import itertools
import math
import sys
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from small_models import Small, patches
from torch import Tensor, nn

import lrptrain


class Additive(nn.Module):
    """Every 4 x 4 patch adds its mean times a weight of its own; `squared` makes them interact."""

    def __init__(self, squared: bool = False):
        super().__init__()
        self.embed = nn.Conv2d(1, 1, 4, 4, bias=False).double()
        nn.init.constant_(self.embed.weight, 1 / 16)
        self.weight = torch.linspace(-1, 2, 4, dtype=torch.float64)
        self.squared = squared

    def forward(self, x: Tensor) -> Tensor:
        found = self.embed(x).flatten(1) @ self.weight
        return torch.stack([found.square() if self.squared else found, -found], 1) + 0.7


def squares() -> Tensor:
    return torch.randn(2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.5


def shares() -> Tensor:
    model = Additive()
    return (model.embed(squares()).flatten(1) * model.weight).detach()


def test_shapley_values_of_a_sum_are_its_parts():
    found = lrptrain.attribute(Additive(), squares(), 0, "kernel_shap", samples=64)
    assert relative_error(found.scores, shares()).max() < 1e-5  # captum hands the answers over in float32
    assert relative_error(lrptrain.attribute(Additive(), squares(), 1, "kernel_shap").scores, -shares()).max() < 1e-5


def shapley(value: Any, players: int) -> list[float]:
    """By the textbook: the mean marginal contribution over all orders."""
    found = [0.0] * players
    for order in itertools.permutations(range(players)):
        for position, player in enumerate(order):
            found[player] += value({*order[: position + 1]}) - value({*order[:position]})
    return [total / math.factorial(players) for total in found]


def test_shapley_values_with_interactions_are_those_of_the_textbook():
    """With 4 tokens the subsets are few enough for samples to cover them in their proportion."""
    parts = shares()
    found = lrptrain.attribute(Additive(squared=True), squares(), 0, "kernel_shap", samples=1500, at_once=1500)
    expected = torch.tensor([shapley(lambda on, row=row: sum(row[i].item() for i in on) ** 2, 4) for row in parts])
    assert (found.scores - expected).abs().max() < 0.03
    assert (parts.square() - expected).abs().max() > 0.5  # what ignoring the interactions would give


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_shapley_values_sum_to_the_fall_from_the_whole_to_nothing(name):
    from model_zoo import KINDS

    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    shap = lrptrain.attribute(model, inputs, 1, "kernel_shap", samples=60)
    path = lrptrain.attribute(model, inputs, 1, "integrated_gradients", steps=64)  # the same baseline, the same sum
    assert (shap.scores.sum(1) - path.scores.sum(1)).abs().max() < 1e-4


def test_lime_ranks_the_parts_of_a_sum_and_finds_them_without_a_penalty():
    exact = lrptrain.attribute(Additive(), squares(), 0, "lime", alpha=1e-9)
    assert relative_error(exact.scores, shares()).max() < 1e-4
    found = lrptrain.attribute(Additive(), squares(), 0, "lime")
    assert torch.equal(found.scores.argsort(1), shares().argsort(1))
    assert (found.scores.abs().sum(1) < shares().abs().sum(1)).all()  # the penalty shrinks


def test_lime_is_the_weighted_ridge_regression_of_scikit_learn():
    from captum._utils.models.linear_model import SkLearnRidge
    from captum.attr import Lime
    from captum.attr._core.lime import get_exp_kernel_similarity_function

    model, images = Additive(squared=True), squares()[:1]
    recording = lrptrain.record(model, images)
    feature = torch.arange(4).view(2, 2).repeat_interleave(4, 0).repeat_interleave(4, 1)[None, None]
    kernel = get_exp_kernel_similarity_function("cosine", 0.25)
    captum = Lime(lambda on: model(on[:, feature[0, 0]][:, None] * images)[:, 0], SkLearnRidge(alpha=1.0), kernel)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(recording.content_seeds(0)[0])
        expected = captum.attribute(torch.ones(1, 4), n_samples=50, perturbations_per_eval=50)
    found = lrptrain.attribute(model, images, 0, "lime", samples=50)
    assert relative_error(found.scores, expected).max() < 1e-5


@pytest.mark.parametrize("method", ["lime", "kernel_shap"])
def test_the_sample_seeds_the_subsets(method):
    model = Small(nn.GELU(), nn.Tanh())
    one, again, other = (lrptrain.attribute(model, patches(), 1, method, samples=30, seed=i).scores for i in (0, 0, 1))
    assert torch.equal(one, again)
    assert relative_error(one, other).min() > 1e-3


@pytest.mark.parametrize("method", ["lime", "kernel_shap"])
def test_a_text_of_one_token(method):
    from model_zoo import KINDS

    model: Any = KINDS["bert"].build(True)
    ids = torch.tensor([[7]])
    words = model.bert.embeddings.word_embeddings(ids).detach()
    with torch.no_grad():
        fall = model(inputs_embeds=words).logits[0, 1] - model(inputs_embeds=0 * words).logits[0, 1]
    options: dict[str, Any] = {"alpha": 1e-9} if method == "lime" else {}
    found = lrptrain.attribute(model, ids, 1, method, **options)
    assert abs(found.scores[0, 0] - fall) < 1e-5


def test_without_captum_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum", None)
    with pytest.raises(lrptrain.UnsupportedMethodError, match=r"needs? captum: pip install 'lrptrain\[captum\]'"):
        lrptrain.attribute(Additive(), squares(), 0, "lime")
