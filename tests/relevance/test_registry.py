"""Methods of users: registered, used, removed."""

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


def test_a_method_may_propagate_by_the_composite_of_the_call():
    from lrptrain.relevance.propagation.signed_composites import epsilon_composite

    def relevance_of_the_image(explanation) -> RelevanceMaps:
        root = explanation.recording.tape.root
        (relevance,) = explanation.relevance(epsilon_composite(0.0), [root], of_logit=True)
        return RelevanceMaps(relevance.sum(1).flatten(1))

    with lrptrain.register_method(relevance_of_the_image, class_specific=True, signed=True, uses_rules=True):
        plain, flat = (
            lrptrain.attribute(Small(), patches(), 1, "relevance_of_the_image", composite=composite).scores
            for composite in (None, {"linear": lrptrain.rules.flat()})
        )
    assert not torch.allclose(plain, flat)
