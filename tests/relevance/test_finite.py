"""A map that holds NaN or infinity is never handed to a user: it is mended where a rule was at fault, or it raises."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import patches, tiny_vit
from torch import Tensor, nn

import lrptrain
from lrptrain import NonFiniteError
from lrptrain.relevance.registry import RelevanceMaps, method

MASKED_METHODS = ("attnlrp", "gamma_lrp", "epsilon_lrp", "lrp", "transformer_attribution", "input_x_gradient")


class Masked(nn.Module):
    """`nn.MultiheadAttention` on 16 patches; key 3 is masked out by adding -inf, or a finite number."""

    def __init__(self, blocked: float = -torch.inf, weights: bool = True):
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.blocked, self.weights = blocked, weights
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        mask = torch.zeros(16, 16, dtype=x.dtype)
        mask[:, 3] = self.blocked
        attended, _ = self.attention(tokens, tokens, tokens, attn_mask=mask, need_weights=self.weights)
        return self.head((tokens + attended).mean(1))


@pytest.mark.parametrize("name", MASKED_METHODS)
@pytest.mark.parametrize("weights", [True, False])
def test_an_additive_mask_of_minus_infinity_equals_one_of_a_large_number(name, weights):
    options: dict[str, Any] = {"form": "explicit"} if name == "attnlrp" else {}
    infinite = lrptrain.attribute(Masked(weights=weights), patches(), 1, name, **options)
    finite = lrptrain.attribute(Masked(-1e6, weights), patches(), 1, name, **options)
    assert infinite.scores.isfinite().all()
    # The softmax's rule multiplies the scores by 0 where p is 0, so that the size of the mask does not matter.
    assert relative_error(infinite.scores, finite.scores).max() < 1e-9


def test_masks_of_minus_infinity_can_be_trained_through():
    model = Masked()
    relevance = lrptrain.attribute(model, patches(), 1, "attnlrp", form="explicit", create_graph=True)
    relevance.scores.square().sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.fixture
def broken() -> Iterator[Callable[[str, float], str]]:
    """A method that puts one number that is not finite into one of its maps; removed afterwards."""
    from lrptrain.relevance import registry

    names = []

    def register(field: str, number: float) -> str:
        def a_broken_method(explanation) -> RelevanceMaps:
            samples = explanation.recording.samples
            scores, pixels = torch.zeros(samples, 16), torch.zeros(samples, 16, 16)
            attention = (torch.zeros(samples, 2, 17, 17), torch.zeros(samples, 2, 17, 17))
            {"scores": scores, "input": pixels, "attention": attention[1]}[field][1].view(-1)[5] = number
            return RelevanceMaps(scores, pixels, attention)

        method(class_specific=True, signed=True, source="-")(a_broken_method)
        names.append("a_broken_method")
        return "a_broken_method"

    yield register
    for name in names:
        del registry._METHODS[name]


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("field", ["scores", "input", "attention"])
def test_every_map_is_checked_once_and_the_error_says_what_to_do(broken, field, number):
    name = broken(field, number)
    with pytest.raises(
        NonFiniteError, match=f"{name}: the {field} are NaN or infinite in samples .1., though"
    ) as error:
        lrptrain.attribute(tiny_vit().double().eval(), patches(), 1, name)
    assert "\n" not in str(error.value)
    with pytest.raises(NonFiniteError, match=name):
        lrptrain.record(tiny_vit().double().eval(), patches()).attribute(1, name)


def test_with_a_graph_the_training_loop_decides(broken):
    name = broken("scores", torch.nan)
    relevance = lrptrain.attribute(tiny_vit().double().eval(), patches(), 1, name, create_graph=True)
    assert relevance.scores.isnan().any()


class Squashed(nn.Module):
    """Logits that stay finite where the input does not; `shift` is added to them."""

    def __init__(self, *shift: float):
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
        self.shift = torch.tensor(shift or (0.0,) * 4, dtype=torch.float64)
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x.tanh()).flatten(2).mean(2)) + self.shift


def test_an_infinite_input_is_named_as_the_cause():
    x = patches()
    x[2, 0, 1, 1] = torch.inf
    assert Squashed()(x).isfinite().all()
    with pytest.raises(NonFiniteError, match=r"input_x_gradient: .* in samples \[2\], as is the input"):
        lrptrain.attribute(Squashed(), x, 1, "input_x_gradient")


def test_an_infinite_explained_logit_is_named_and_other_classes_stay_free():
    model = Squashed(0.0, -torch.inf, 0.0, 0.0)
    with pytest.raises(NonFiniteError, match=r"epsilon_lrp: .* as are the explained logits: choose another target"):
        lrptrain.attribute(model, patches(), 1, "epsilon_lrp")
    assert lrptrain.attribute(model, patches(), 0, "epsilon_lrp").scores.isfinite().all()


@pytest.mark.parametrize("create_graph", [False, True])
def test_an_input_that_is_not_finite_is_named_before_the_logits(create_graph):
    x = patches()
    x[1, 0, 2, 3] = torch.nan
    with pytest.raises(NonFiniteError, match=r"^the input holds NaN or infinity in samples \[1\]: replace"):
        lrptrain.attribute(Squashed(), x, create_graph=create_graph)
    with pytest.raises(NonFiniteError, match=r"^the input 'x' holds NaN or infinity in samples \[1\]: replace"):
        lrptrain.record(Squashed(), {"x": x})


def test_nan_logits_of_a_finite_input_say_where_to_look():
    model = Squashed(torch.nan, 0.0, 0.0, 0.0)
    with pytest.raises(NonFiniteError, match=r"logits of samples \[0, 1, 2\] are NaN.*the model's weights"):
        lrptrain.attribute(model, patches())
