"""Methods of users: registered, used, removed."""

from typing import Any

import pytest
import torch
from small_models import Small, patches

import lrptrain
from lrptrain import RelevanceMaps, UnsupportedMethodError
from lrptrain.relevance.registry import get_method


def pixels_as_they_are(explanation, power: int = 1) -> RelevanceMaps:
    """Every patch's number, to a power."""
    tokens = explanation.recording.tape.leaf.detach().mean(1).unflatten(1, (4, 4)).unflatten(3, (4, 4)).sum((2, 4))
    return RelevanceMaps(tokens.flatten(1) ** power)


def test_a_method_counts_until_its_handle_is_removed():
    before = lrptrain.methods()
    handle = lrptrain.register_method(pixels_as_they_are, class_specific=False, signed=True, source="nobody 2026")
    assert set(lrptrain.methods()) - set(before) == {"pixels_as_they_are"}
    found = lrptrain.attribute(Small(), patches(), method="pixels_as_they_are", power=2)
    expected = patches().mean(1).unflatten(1, (4, 4)).unflatten(3, (4, 4)).sum((2, 4)).flatten(1) ** 2
    torch.testing.assert_close(found.scores, expected)
    assert found.method == "pixels_as_they_are"
    assert handle.method.options == {"power": 1}
    assert handle.method.source == "nobody 2026"
    handle.remove()
    handle.remove()
    assert lrptrain.methods() == before
    with pytest.raises(UnsupportedMethodError, match="unknown method 'pixels_as_they_are'"):
        lrptrain.attribute(Small(), patches(), method="pixels_as_they_are")


def test_a_method_in_a_block_and_by_another_name():
    with lrptrain.register_method(
        pixels_as_they_are, class_specific=False, signed=True, differentiable=False, name="pixels"
    ):
        with pytest.raises(UnsupportedMethodError, match="pixels cannot be differentiated"):
            lrptrain.attribute(Small(), patches(), method="pixels", create_graph=True)
        with pytest.raises(UnsupportedMethodError, match="pixels propagates no relevance by rules"):
            lrptrain.attribute(Small(), patches(), method="pixels", composite={"linear": lrptrain.rules.flat()})
        assert get_method("pixels", {}).class_specific is False
    assert "pixels" not in lrptrain.methods()


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="there is a method 'lrp': give the new one another name"):
        lrptrain.register_method(pixels_as_they_are, class_specific=False, signed=True, name="lrp")
    first = lrptrain.register_method(pixels_as_they_are, class_specific=False, signed=True)
    first.remove()
    with lrptrain.register_method(pixels_as_they_are, class_specific=True, signed=True):
        first.remove()  # the first one's handle does not remove the second
        assert get_method("pixels_as_they_are", {}).class_specific


def scores_of(*shape: int):
    """A method that returns so many scores."""

    def mine(explanation, first: bool = True) -> RelevanceMaps:
        return RelevanceMaps(torch.ones(shape).cumsum(-1))

    return mine


WRONG = {
    "a class token": (
        (3, 17),
        r"returned scores \[3, 17\], not \[3, 16\] \(a grid of 4 x 4\): without the class token",
    ),
    "one too few": ((3, 15), r"returned scores \[3, 15\], not \[3, 16\] \(a grid of 4 x 4\)$"),
    "a grid": ((3, 4, 4), r"returned scores \[3, 4, 4\], not \[3, 16\] .*: RelevanceMaps\(scores.flatten\(1\)\)$"),
    "one sample": ((1, 16), r"returned scores \[1, 16\], not \[3, 16\]"),
    "no batch": ((16,), r"returned scores \[16\], not \[3, 16\]"),
}


@pytest.mark.parametrize(("shape", "message"), WRONG.values(), ids=WRONG)
def test_a_map_of_another_shape_is_refused_at_once(shape, message):
    with lrptrain.register_method(scores_of(*shape), class_specific=False, signed=False):
        with pytest.raises(ValueError, match=message) as refused:
            lrptrain.attribute(Small(), patches()[:3], method="mine")
        assert str(refused.value).startswith("the method 'mine' returned")
        assert "\n" not in str(refused.value)
        with pytest.raises(ValueError, match="the method 'mine' returned"):
            lrptrain.attribute(Small(), patches()[:3], method="mine", create_graph=True)
    # What the line says to write works.
    mended = {(3, 17): lambda scores: scores[:, 1:], (3, 4, 4): lambda scores: scores.flatten(1)}.get(shape)
    if mended is not None:
        given = torch.ones(shape).cumsum(-1)
        with lrptrain.register_method(
            lambda explanation: RelevanceMaps(mended(given)), class_specific=False, signed=False, name="mine"
        ):
            assert torch.equal(lrptrain.attribute(Small(), patches()[:3], method="mine").scores, mended(given))


def test_a_text_has_a_score_for_each_position():
    from transformers import BertConfig, BertForSequenceClassification

    sizes: Any = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    net = BertForSequenceClassification(BertConfig(**sizes, intermediate_size=16, max_position_embeddings=8)).eval()
    batch = {"input_ids": torch.randint(1, 20, (2, 6)), "attention_mask": torch.ones(2, 6, dtype=torch.long)}
    with (
        lrptrain.register_method(scores_of(2, 5), class_specific=False, signed=False),
        pytest.raises(ValueError, match=r"the method 'mine' returned scores \[2, 5\], not \[2, 6\]$"),
    ):
        lrptrain.attribute(net, batch, method="mine")
    with lrptrain.register_method(scores_of(2, 6), class_specific=False, signed=False):
        assert lrptrain.attribute(net, batch, method="mine").scores.shape == (2, 6)


def test_what_is_no_map_is_refused_with_what_to_return():
    def scores_alone(explanation) -> torch.Tensor:
        return torch.ones(3, 16)

    with (
        lrptrain.register_method(scores_alone, class_specific=False, signed=False),  # type: ignore[arg-type]
        pytest.raises(ValueError, match=r"returned a Tensor: return lrptrain.RelevanceMaps\(scores\)$"),
    ):
        lrptrain.attribute(Small(), patches()[:3], method="scores_alone")
