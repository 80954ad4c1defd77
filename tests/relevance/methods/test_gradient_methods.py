"""Integrated gradients and SmoothGrad: captum, completeness, closed forms, memory bounds."""

from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS
from small_models import Small, patches
from torch import Tensor, nn

import lrptrain

FLOAT32 = 1e-7  # captum rounds the weights of the steps to it
TARGET = torch.tensor([0, 3, 1])


def small(**options: Any) -> lrptrain.Relevance:
    return lrptrain.attribute(MODEL, patches(), TARGET, **options)


MODEL = Small(nn.GELU(), nn.Tanh())


def test_integrated_gradients_are_those_of_captum():
    from captum.attr import IntegratedGradients

    start = patches().flip(0) * 0.3
    found = small(method="integrated_gradients", steps=7, baseline=0.25)
    expected = IntegratedGradients(MODEL).attribute(patches(), 0.25, TARGET, n_steps=7, method="gausslegendre")
    assert relative_error(found.input, expected.sum(1)).max() < FLOAT32
    found = small(method="integrated_gradients", steps=7, baseline=start)
    expected = IntegratedGradients(MODEL).attribute(patches(), start, TARGET, n_steps=7, method="gausslegendre")
    assert relative_error(found.input, expected.sum(1)).max() < FLOAT32


def test_integrated_gradients_of_a_text_are_those_of_captum_at_the_word_embeddings():
    from captum.attr import IntegratedGradients

    model: Any = KINDS["bert"].build(True)
    inputs = KINDS["bert"].inputs()
    words = model.bert.embeddings.word_embeddings(inputs["input_ids"]).detach()

    def logits(embeddings: Tensor, mask: Tensor) -> Tensor:
        return model(inputs_embeds=embeddings, attention_mask=mask).logits

    found = lrptrain.attribute(model, inputs, TARGET, "integrated_gradients", steps=6)
    expected = IntegratedGradients(logits).attribute(
        words, 0.0, TARGET, (inputs["attention_mask"],), n_steps=6, method="gausslegendre"
    )
    assert relative_error(found.input, expected).max() < FLOAT32
    assert relative_error(found.scores, expected.sum(-1)).max() < FLOAT32


def test_a_model_may_write_into_what_it_is_given():
    class Doubling(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return MODEL(x.mul_(2))

    found = lrptrain.attribute(Doubling(), patches() / 2, TARGET, "integrated_gradients", steps=4)
    assert relative_error(found.input, small(method="integrated_gradients", steps=4).input).max() < 1e-12


@pytest.mark.parametrize("other", [None, 2])
def test_integrated_gradients_sum_to_the_difference_of_the_logits(other):
    with torch.no_grad():
        fall = MODEL(patches()) - MODEL(torch.zeros_like(patches()))
    expected = fall.gather(1, TARGET[:, None])[:, 0] - (0 if other is None else fall[:, other])
    errors = []
    for steps in (2, 4, 16):
        found = small(method="integrated_gradients", steps=steps, other=other)
        errors.append((found.scores.sum(1) - expected).abs().max().item())
    assert errors[2] < 1e-6 < errors[0]
    assert errors[2] < errors[1] < errors[0]


@pytest.mark.parametrize("method", ["integrated_gradients", "smoothgrad"])
def test_forward_passes_of_any_size_give_the_same_map(method):
    sizes: list[int] = []
    steps, count = 5, "steps" if method == "integrated_gradients" else "samples"
    handle = MODEL.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    maps = [small(method=method, at_once=at_once, **{count: steps}).scores for at_once in (2, 5, 1000)]
    handle.remove()
    assert relative_error(maps[0], maps[1]).max() < 1e-10
    assert relative_error(maps[0], maps[2]).max() < 1e-10
    assert sizes.count(2) >= 3 * steps // 2
    assert sizes.count(5) == 3 * steps // 5
    assert max(sizes) == 3 * steps


class Quadratic(nn.Module):
    """logits = (sum of x^2, sum of x): the gradient of the first is 2 x."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 1, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return (
            torch.stack([x.square().flatten(1).sum(1), x.flatten(1).sum(1)], 1)
            + 0 * self.embed(x).mean((1, 2, 3))[:, None]
        )


def smooth(images: Tensor, target: int, **options: Any) -> Tensor:
    found = lrptrain.attribute(Quadratic().double(), images, target, "smoothgrad", at_once=600, **options).input
    assert found is not None
    return found


def test_smoothgrad_is_the_absolute_mean_gradient_over_noise_of_the_range():
    images, samples = patches() * torch.tensor([1.0, 2.0, 0.5]).double().view(3, 1, 1, 1), 200
    assert relative_error(smooth(images, 1), torch.full_like(images[:, 0], 3.0)).max() < 1e-12
    assert not smooth(images * 0, 0).any()  # no range, no noise
    found = smooth(images, 0, samples=samples)
    mean_noise = 2 * 0.15 * (images.flatten(1).amax(1) - images.flatten(1).amin(1)) / samples**0.5
    # |2 x + noise| summed over three channels: off by about sqrt(3) standard deviations of the mean noise.
    spread = (found - (2 * images).abs().sum(1)).flatten(1).square().mean(1).sqrt() / mean_noise
    assert ((spread > 1.4) & (spread < 2.0)).all()
    assert torch.equal(found, smooth(images, 0, samples=samples))
    assert not torch.equal(found, smooth(images, 0, samples=samples, seed=1))


@pytest.mark.parametrize("options", [{"steps": 0}, {"at_once": 0}])
def test_numbers_below_one_are_refused(options):
    with pytest.raises(ValueError, match="must be 1 or more"):
        small(method="integrated_gradients", **options)
