"""Integrated gradients say how far their sum is off, and take as many steps as a sample needs."""

import warnings

import pytest
import torch
from golden_cases import relative_error
from small_models import Small, patches
from torch import Tensor, nn

import lrptrain
from lrptrain import RelevanceWarning


class Steep(nn.Module):
    """Logits with a step somewhere on the line from the baseline, which few nodes miss; steeper for larger images."""

    def __init__(self, slope: float):
        super().__init__()
        self.inner = Small()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        loud = x.flatten(1).square().mean(1, keepdim=True)
        return self.inner(x) + torch.sigmoid(self.slope * (loud - 0.5))


def change_of(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return (model(x) - model(torch.zeros_like(x)))[:, 1]


def error_of(relevance: lrptrain.Relevance) -> Tensor:
    assert relevance.convergence_delta is not None
    return relevance.convergence_delta


def pixels_of(relevance: lrptrain.Relevance) -> Tensor:
    assert relevance.input is not None
    return relevance.input


@pytest.mark.parametrize("steps", [None, 8, 32])
def test_the_delta_is_the_sum_minus_the_change_of_the_logit(steps):
    model = Small()
    relevance = lrptrain.attribute(model, patches(), 1, "integrated_gradients", steps=steps)
    assert relevance.input is not None
    expected = relevance.input.flatten(1).sum(1) - change_of(model, patches())
    # Both are differences of sums of some hundred numbers around 1, in float64.
    assert (error_of(relevance) - expected).abs().max() < 1e-12
    assert lrptrain.attribute(model, patches(), 1, "input_x_gradient").convergence_delta is None


def test_steps_are_doubled_until_the_map_has_converged():
    model = Steep(200.0)
    with pytest.warns(RelevanceWarning, match="not converged: after 4 steps .* leave steps out"):
        few = lrptrain.attribute(model, patches(), 1, "integrated_gradients", steps=4)
    relevance = lrptrain.attribute(model, patches(), 1, "integrated_gradients")
    size = torch.maximum(change_of(model, patches()).abs(), pixels_of(relevance).flatten(1).abs().sum(1) / 10)
    assert (error_of(few).abs() > 0.02 * size).any()
    assert (error_of(relevance).abs() <= 0.02 * size).all()


def test_every_sample_takes_the_steps_that_it_needs():
    model = Steep(200.0)
    x = patches() * torch.tensor([0.01, 1.0, 1.3], dtype=torch.float64)[:, None, None, None]
    together = lrptrain.attribute(model, x, 1, "integrated_gradients")
    for number, row in enumerate(x):
        alone = lrptrain.attribute(model, row[None], 1, "integrated_gradients")
        assert relative_error(pixels_of(alone), pixels_of(together)[number : number + 1]).max() < 1e-12
    at_first = lrptrain.attribute(model, x[:1], 1, "integrated_gradients", steps=32)
    assert relative_error(pixels_of(at_first), pixels_of(together)[:1]).max() < 1e-12


def test_what_does_not_converge_is_said_once_per_model():
    model = Steep(1e5)
    with pytest.warns(RelevanceWarning, match=r"after 256 steps .* pass steps=512 or more") as caught:
        lrptrain.attribute(model, patches(), 1, "integrated_gradients")
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lrptrain.attribute(model, patches(), 1, "integrated_gradients")


def test_a_map_with_a_graph_takes_32_steps_and_has_no_delta():
    relevance = lrptrain.attribute(Steep(1e5), patches(1), 1, "integrated_gradients", create_graph=True)
    exact = lrptrain.attribute(Steep(200.0), patches(1) * 0.01, 1, "integrated_gradients", steps=32)
    assert relevance.convergence_delta is None
    assert relevance.scores.requires_grad
    assert exact.convergence_delta is not None
