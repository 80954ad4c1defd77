"""A map that is finite, but 0 everywhere, or of large numbers that cancel: it comes with a word."""

import warnings
from typing import Any

import pytest
import torch
from model_zoo import randomised
from small_models import patches
from torch import Tensor, nn

import lrptrain
from lrptrain import RelevanceWarning
from lrptrain.relevance.registry import RelevanceMaps, method

SHARED = ("attnlrp", "epsilon_lrp")


def said(model: nn.Module, x: Tensor, name: str, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lrptrain.attribute(model, x, options.pop("target", 0), name, **options)
    assert all(warning.category is RelevanceWarning for warning in caught)
    return [str(warning.message) for warning in caught]


class Halves(nn.Module):
    """The mean of pixels, times numbers per class."""

    def __init__(self, *weights: float):
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 1, 4, 4, bias=False).double(), nn.Linear(1, len(weights)).double()
        with torch.no_grad():
            self.embed.weight.fill_(1 / 48)
            self.head.weight.copy_(torch.tensor(weights)[:, None])
            self.head.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x).flatten(1).mean(1, keepdim=True))


def nearly_even(gap: float) -> Tensor:
    """Patches of 1 and of -1 + gap: their mean is gap / 2, that of absolute values about 1."""
    image = torch.ones(1, 3, 16, 16, dtype=torch.float64)
    image[..., 8:] = gap - 1
    return image


@pytest.mark.parametrize("name", SHARED)
def test_relevance_that_cancels_a_thousandfold_is_said(name):
    # Absolute relevance over the logit: (1 + 1 - gap) / gap.
    assert said(Halves(1, 0.5, 0), nearly_even(0.01), name) == []
    (message,) = said(Halves(1, 0.5, 0), nearly_even(1e-4), name)
    assert message.startswith(f"{name}: the absolute relevance of sample 0 adds up to 2e+04 times the explained logit")
    assert "\n" not in message
    assert "gamma_lrp or input_x_gradient" in message


def test_it_is_said_once_per_model_and_method_and_not_of_its_own_advice():
    model = Halves(1, 0.5, 0)
    assert len(said(model, nearly_even(1e-4), "attnlrp")) == 1
    assert said(model, nearly_even(1e-4), "attnlrp") == []
    (message,) = said(model, nearly_even(1e-4), "gamma_lrp")
    assert message.endswith("take input_x_gradient, which do not divide by such sums")


def test_methods_that_share_nothing_out_and_graphs_are_silent():
    model = Halves(1, 0.5, 0)
    assert said(model, nearly_even(1e-4), "input_x_gradient") == []
    assert said(model, nearly_even(1e-4), "attnlrp", create_graph=True) == []


def test_a_logit_near_zero_is_compared_with_the_spread_of_the_logits():
    # The first class's logit is a ten-thousandth of the others', and so are the relevance and nothing is said.
    model = Halves(1, 1e4, 0)
    assert said(model, nearly_even(1e-4), "attnlrp") == []
    assert said(model, nearly_even(1e-4), "attnlrp", target=1) != []


def test_a_single_number_of_a_small_scale_is_no_reason():
    assert said(Halves(1), nearly_even(1e-4), "attnlrp") == []
    assert said(Halves(1e4), nearly_even(1e-4), "attnlrp") != []


def test_a_class_that_is_ruled_out_has_no_part_in_the_spread():
    model = Halves(1, 0.5, 0)
    with torch.no_grad():
        model.head.bias[2] = -torch.inf
    assert len(said(model, nearly_even(1e-4), "attnlrp")) == 1


def test_the_difference_of_two_classes_is_the_explained_number():
    # 1 and -1 share out 2 times the first logit, which is what the spread is: nothing is large.
    assert said(Halves(1, -1, 0), nearly_even(0.01), "attnlrp", other=1) == []
    assert len(said(Halves(1, -1, 0), nearly_even(1e-4), "attnlrp", other=1)) == 1


# -- Nothing at all ----------------------------------------------------------------------------------------------------


class Dead(nn.Module):
    """A unit that is off for negative images, behind a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
        randomised(self)
        assert self.embed.bias is not None
        self.bias = self.embed.bias
        with torch.no_grad():
            self.embed.weight.abs_()
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x).relu().flatten(2).mean(2))


@pytest.mark.parametrize("name", ["attnlrp", "epsilon_lrp", "input_x_gradient", "leave_one_out"])
def test_a_map_of_zeros_names_its_samples_and_says_what_it_means(name):
    images = patches().abs()
    images[1] *= -1
    (message,) = said(Dead(), images, name)
    assert message.startswith(f"{name}: the map of samples [1] is 0 everywhere: as far as the method sees, the")
    assert "does not depend on the input" in message
    assert said(Dead(), patches().abs(), name) == []
    assert name == "leave_one_out" or said(Dead(), images, name, create_graph=True) == []


def test_an_input_of_zeros_is_the_cause():
    model = Dead()
    images = patches().abs()
    images[2] = 0
    with torch.no_grad():
        model.bias.fill_(1)
    (message,) = said(model, images, "input_x_gradient")
    assert message.startswith("input_x_gradient: the map of samples [2] is 0 everywhere: so is the input")


def test_a_logit_of_zero_has_nothing_to_share_out():
    (message,) = said(Halves(0, 1), nearly_even(0.5), "attnlrp")
    assert "the explained logit is 0" in message


@pytest.fixture
def positive():
    """A method that keeps nothing of the second sample."""

    def keeps_nothing(explanation) -> RelevanceMaps:
        scores = torch.ones(explanation.recording.samples, 16)
        scores[1] = 0
        return RelevanceMaps(scores)

    registered = method(class_specific=True, signed=False, source="-")(keeps_nothing)
    yield registered.__name__
    from lrptrain.relevance import registry

    del registry._METHODS["keeps_nothing"]


def test_a_method_that_keeps_the_positive_says_that_there_was_none(positive):
    (message,) = said(Dead(), patches(), positive)
    assert "[1] is 0 everywhere: the method keeps what is positive" in message
    assert "input_x_gradient or attnlrp also show" in message


class Words(nn.Module):
    """The mean of a text's own words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 8), nn.Linear(8, 3)
        randomised(self)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        weights = attention_mask.to(torch.float64)
        states = self.embedding(input_ids) * weights[..., None]
        return self.head(states.sum(1) / weights.sum(1, keepdim=True).clamp(min=1))


def test_nothing_is_said_of_a_text_that_is_all_padding():
    inputs = {"input_ids": torch.arange(8).view(2, 4), "attention_mask": torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]])}
    assert said(Words(), inputs, "attnlrp") == []  # type: ignore[arg-type]


class Reattention(nn.Module):
    """As DeepViT: the heads' attention is mixed, and normalised over the heads; of two heads that is 1 and -1."""

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads
        self.embed, self.qkv, self.head = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 48), nn.Linear(16, 3)
        self.mix, self.norm = nn.Linear(heads, heads, bias=False), nn.LayerNorm(heads)
        self.token = nn.Parameter(torch.randn(1, 1, 16))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(tokens).chunk(3, -1))
        maps = self.norm(self.mix((q @ k.mT / 4).softmax(-1).movedim(1, -1))).movedim(-1, 1)
        return self.head((tokens + (maps @ v).transpose(1, 2).flatten(2))[:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("heads", "cancels"), [(2, True), (4, False)])
def test_a_map_of_rounding_is_said_to_be_one(heads, cancels, dtype):
    torch.manual_seed(0)
    model = Reattention(heads).to(dtype).eval()
    if not cancels:  # weights and biases per head, as after a training
        nn.init.uniform_(model.norm.weight, 0.5, 1.5)
        nn.init.uniform_(model.norm.bias, 0.5, 1.5)
    lines = said(model, patches().to(dtype), "rollout")
    assert ["nothing but rounding" in line for line in lines] == [True] * cancels
    assert not any("rounding" in line for line in said(model, patches().to(dtype), "attnlrp"))
