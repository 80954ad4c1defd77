"""The method that is taken where none is named."""

import warnings

import pytest
import torch
from golden_cases import relative_error
from small_models import Block, Small, patches
from torch import nn

import lrptrain
from lrptrain.relevance.default import DEFAULT_METHODS, check_method, first_that_serves


def without_a_rule() -> Small:
    """A model that pools one token, with an operation through which gradients pass, but no relevance."""
    return Small(Block(lambda tokens: torch.logcumsumexp(tokens, 1)), Block(first)).double().eval()


def first(tokens):
    return tokens[:, :1]


class TokenPerClass(Small):
    def forward(self, x):
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        q, k, v = self.qkv(tokens).chunk(3, -1)
        return (tokens + nn.functional.scaled_dot_product_attention(q, k, v))[:, :4].mean(-1)


def test_the_default_has_its_own_numbers_and_says_nothing():
    model = Small().double().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_default = lrptrain.attribute(model, patches(), 1)
    named = lrptrain.attribute(model, patches(), 1, DEFAULT_METHODS[0])
    assert by_default.method == named.method == DEFAULT_METHODS[0]
    assert torch.equal(by_default.scores, named.scores)


def test_the_next_takes_the_place_of_one_that_cannot_serve_the_model_and_it_is_said_once():
    model = without_a_rule()
    with pytest.warns(lrptrain.RelevanceWarning) as given:
        first = lrptrain.attribute(model, patches(), 1)
    (warning,) = given
    assert warning.filename == __file__  # the line of the caller, not of the engine
    text = str(warning.message)
    for part in ("default method", "Small", DEFAULT_METHODS[0], "logcumsumexp", "generic_attention is used", "method="):
        assert part in text
    assert "\n" not in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = lrptrain.attribute(model, patches(), 1)
        recording = lrptrain.record(model, patches())
        third = recording.attribute(1)
    assert first.method == second.method == third.method == "generic_attention"
    named = lrptrain.attribute(model, patches(), 1, "generic_attention")
    for scores in (first.scores, second.scores, third.scores):
        assert torch.equal(scores, named.scores)


@pytest.mark.parametrize("model", [Small(), TokenPerClass()], ids=["mean", "a token per class"])
def test_a_map_of_one_row_of_several_is_no_default_and_says_so(model):
    model = model.double().eval()
    with pytest.warns(lrptrain.RelevanceWarning, match="computed from several tokens.*attnlrp or gamma_lrp follow"):
        lrptrain.attribute(model, patches(), 1, "generic_attention")
    recording = lrptrain.record(model, patches())
    with pytest.raises(lrptrain.UnsupportedMethodError, match="computed from several tokens"):
        recording.check_default("generic_attention")
    recording.check_default("attnlrp")


def test_a_map_of_the_only_row_is_a_default():
    model = Small(after=Block(first)).double().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lrptrain.attribute(model, patches(), 1, "generic_attention")
    lrptrain.record(model, patches()).check_default("generic_attention")


@pytest.mark.filterwarnings("ignore::lrptrain.RelevanceWarning")
def test_a_batch_that_falls_back_equals_batches_of_one():
    model = without_a_rule()
    images = patches()
    together = lrptrain.attribute(model, images, 1).scores
    alone = torch.cat([lrptrain.attribute(model, image[None], 1).scores for image in images])
    assert relative_error(together, alone).max() < 1e-12


def test_a_model_without_attention_has_a_map_too():
    model = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.GELU(), nn.Flatten(), nn.Linear(64, 3)).double().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lrptrain.RelevanceWarning)
        relevance = lrptrain.attribute(model, patches())
    assert relevance.method in DEFAULT_METHODS
    assert relevance.grid == (4, 4)


def test_a_method_that_is_named_is_never_replaced():
    with pytest.raises(lrptrain.UnsupportedOperationError, match="logcumsumexp"):
        lrptrain.attribute(without_a_rule(), patches(), 1, "attnlrp")


@pytest.mark.parametrize("target", [9, [0, 1], 0.5])
def test_wrong_inputs_are_no_reason_to_fall_back(target):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="target"):
            lrptrain.attribute(Small().double().eval(), patches(), target)


def test_options_are_those_of_the_default():
    with pytest.raises(lrptrain.UnsupportedMethodError, match="wrong"):
        lrptrain.attribute(Small(), patches(), 1, wrong=1)
    assert check_method(None, {}) == DEFAULT_METHODS
    # What takes the default's place must know the options, too: of these, only methods by rules take a composite.
    assert "input_x_gradient" not in check_method(None, {"composite": {}}, ("attnlrp", "input_x_gradient"))


def test_a_loss_can_be_trained_through_what_takes_the_place():
    model = without_a_rule()
    with pytest.warns(lrptrain.RelevanceWarning, match="generic_attention is used"):
        relevance = lrptrain.attribute(model, patches(), 1, create_graph=True)
    relevance.scores.square().sum().backward()
    assert model.qkv.weight.grad is not None


def test_what_none_can_serve_is_refused_with_the_reasons_of_all():
    def compute(name):
        raise lrptrain.UnsupportedModelError(f"{name} needs a thing; take another")

    with pytest.raises(
        lrptrain.UnsupportedModelError, match=r"^one needs a thing; take another .* two: two needs a th"
    ):
        first_that_serves(nn.Identity(), ["one", "two"], compute)

    def compute_alike(name):
        raise lrptrain.UnsupportedModelError("the model is no good")

    with pytest.raises(lrptrain.UnsupportedModelError, match=r"^the model is no good$"):
        first_that_serves(nn.Identity(), ["one", "two"], compute_alike)


def test_the_model_runs_once():
    calls = []
    model = without_a_rule()
    model.head.register_forward_hook(lambda *_: calls.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lrptrain.RelevanceWarning)
        lrptrain.attribute(model, patches(), 1)
    assert calls == [1]
