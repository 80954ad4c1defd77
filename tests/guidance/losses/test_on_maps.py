"""Losses on maps: by hand, against other libraries, their gradients, and what has no part in them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import lrptrain
from lrptrain.batch.annotations import TokenAnnotation, rationale_to_tokens
from lrptrain.guidance import MAP_LOSSES, guidance_loss
from lrptrain.metrics import energy_pointing_game
from lrptrain.models import ImageClassifier

LOSSES = list(MAP_LOSSES)


def rows(*numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def annotated(*rationales: list[int]) -> TokenAnnotation:
    found = rationale_to_tokens(torch.tensor(rationales))
    return TokenAnnotation(found.evidence.double(), found.valid.double())


def by_area(samples: int = 3, tokens: int = 7, seed: int = 0) -> tuple[Tensor, TokenAnnotation]:
    generator = torch.Generator().manual_seed(seed)
    scores, evidence, valid = torch.rand(3, samples, tokens, dtype=torch.float64, generator=generator)
    return scores - 0.3, TokenAnnotation(evidence, 0.2 + valid)


BY_HAND = {
    "energy": 1 - 3 / 4,
    "l1": (1 / 2 + 0 + 1 / 2 + 0) / 4,
    "ppce": -(math.log(1 / 2) + math.log(1)) / 2,
    "robust_vit": 2 * (0.5**2) / 4 + 0.3 * (0.5**2) / 4,
    "rationale_bce": -(2 * math.log(1 / 2) + 2 * math.log(1 - 1e-6)) / 4,
    "rationale_kl": 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.5),
    "order": 0.0,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_by_hand(loss):
    scores, annotation = rows([1, 2, 1, 0]), annotated([1, 1, 0, 0])
    assert guidance_loss(scores, annotation, loss).item() == pytest.approx(BY_HAND[loss])


def test_order_by_hand():
    scores, annotation = rows([1, 4, 2, 0]), annotated([1, 1, 0, 0])
    assert guidance_loss(scores, annotation, "order").item() == pytest.approx(((2 - 1) / 4) ** 2 / 2)


def test_energy_is_the_rest_of_the_pointing_game():
    scores, annotation = by_area()
    expected = 1 - energy_pointing_game(scores, annotation)
    torch.testing.assert_close(MAP_LOSSES["energy"](scores, annotation), expected)


def test_a_map_without_relevance_is_no_success_of_energy():
    scores, annotation = rows([0, 0, -1, 0], [1, 1, 0, 0]), annotated([1, 1, 0, 0], [1, 1, 0, 0])
    assert MAP_LOSSES["energy"](scores, annotation).tolist() == [1, 0]


def test_logarithmic_losses_agree_with_torch():
    scores, annotation = by_area()
    positive = scores.clamp(min=0) / scores.amax(-1, keepdim=True)
    share, weight = positive.clamp(1e-6, 1 - 1e-6), annotation.valid / annotation.valid.sum(-1, keepdim=True)
    bce = torch.nn.functional.binary_cross_entropy(share, annotation.evidence, reduction="none")
    torch.testing.assert_close(MAP_LOSSES["rationale_bce"](scores, annotation), (bce * weight).sum(-1))
    mass, given_mass = positive * annotation.valid, annotation.evidence * annotation.valid
    p, q = (x / x.sum(-1, keepdim=True) for x in (given_mass, mass))
    divergence = torch.nn.functional.kl_div(q.clamp(min=1e-6).log(), p, reduction="none").sum(-1)
    torch.testing.assert_close(MAP_LOSSES["rationale_kl"](scores, annotation), divergence)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients(loss):
    scores, annotation = by_area(2, 5, seed=1)
    assert torch.autograd.gradcheck(lambda x: MAP_LOSSES[loss](x, annotation), scores.requires_grad_())


@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_against_the_gradient_helps(loss):
    """From a map that is wrong, every loss leads to one with more energy on the evidence."""
    scores, annotation = rows([0.2, 0.3, 0.9, 0.7]).requires_grad_(), annotated([1, 1, 0, 0])
    before = energy_pointing_game(scores.detach(), annotation)
    (gradient,) = torch.autograd.grad(guidance_loss(scores, annotation, loss), scores)
    assert energy_pointing_game(scores.detach() - 0.05 * gradient / gradient.norm(), annotation) > before


@pytest.mark.parametrize("loss", LOSSES)
@given(st.integers(0, 10**6), st.floats(0.01, 100))
@settings(deadline=None, max_examples=25)
def test_scale_and_batch_do_not_matter(loss, seed, scale):
    scores, annotation = by_area(seed=seed)
    found = MAP_LOSSES[loss](scores, annotation)
    torch.testing.assert_close(MAP_LOSSES[loss](scores * scale, annotation), found)
    for i in range(len(scores)):
        alone = TokenAnnotation(annotation.evidence[i : i + 1], annotation.valid[i : i + 1])
        torch.testing.assert_close(MAP_LOSSES[loss](scores[i : i + 1], alone), found[i : i + 1])


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_ignored_has_no_part(loss):
    scores, annotation = rows([1, 2, 1, 0, 9], [1, 0, 0, 0, -9]), annotated([1, 1, 0, 0, 255], [0, 1, 0, 0, 255])
    short = TokenAnnotation(annotation.evidence[:, :4], annotation.valid[:, :4])
    found, expected = MAP_LOSSES[loss](scores, annotation), MAP_LOSSES[loss](scores[:, :4], short)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("scores", "rationale"),
    [
        ([0, 0, 0], [1, 0, 0]),
        ([5, 5, 5], [1, 0, 0]),
        ([-1, -1, -1], [1, 0, 0]),
        ([1, 2, 3], [0, 0, 0]),
        ([1, 2, 3], [1, 1, 1]),
        ([1, 2, 3], [255, 255, 255]),
        ([1, math.nan, 3], [1, 0, 0]),
        ([1, math.inf, 3], [1, 0, 0]),
        ([1e-300, 0, 1e300], [1, 0, 0]),
    ],
)
def test_losses_and_gradients_are_always_finite(loss, scores, rationale):
    given_scores = rows([float(x) for x in scores], [0.1, 0.2, 0.3]).requires_grad_()
    found = guidance_loss(given_scores, annotated(rationale, [1, 0, 0]), loss)
    (gradient,) = torch.autograd.grad(found, given_scores)
    assert found.isfinite()
    assert gradient.isfinite().all()
    assert gradient[1].any() or loss == "robust_vit"


@pytest.mark.parametrize("loss", LOSSES)
def test_samples_without_annotation_do_not_dilute(loss):
    scores, annotation = by_area(1)
    absent = TokenAnnotation(*(torch.cat([x, torch.zeros_like(x)]) for x in (annotation.evidence, annotation.valid)))
    both = torch.cat([scores, scores])
    torch.testing.assert_close(guidance_loss(both, absent, loss), guidance_loss(scores, annotation, loss))
    nothing = TokenAnnotation(torch.zeros(2, 7), torch.zeros(2, 7))
    assert guidance_loss(both, nothing, loss).item() == 0


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"unknown loss 'ergy'; known are energy, l1"):
        guidance_loss(*by_area(), loss="ergy")
    with pytest.raises(ValueError, match="must have one shape"):
        guidance_loss(torch.ones(3, 4), by_area()[1])


@pytest.mark.parametrize("method", ["generic_attention", "transformer_attribution", "attnlrp", "input_x_gradient"])
def test_a_loss_on_a_map_reaches_the_weights(method):
    torch.manual_seed(0)
    options = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
    model = ImageClassifier(3, "vit_tiny_patch16_224", model_kwargs=options).net.double().eval()
    images, annotation = torch.randn(4, 3, 16, 16, dtype=torch.float64), annotated(*[[1, 0] * 8] * 4)
    scores = lrptrain.attribute(model, images, 0, method, create_graph=True).scores
    guidance_loss(scores, annotation, "robust_vit").backward()
    reached = {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
    # A gradient of the logit does not depend on what is added last.
    missing = {name for name, _ in model.named_parameters()} - reached
    assert missing <= {"head.bias", "norm.bias"}
