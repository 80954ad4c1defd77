"""Maps with all second implementations at work are those of the plain ones alone."""

import runpy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS, randomised
from torch import nn

import lrptrain
from lrptrain.relevance.default import DEFAULT_METHODS, UNSUPPORTED
from lrptrain.relevance.fast import kernels, switch
from lrptrain.relevance.fast.switch import is_plain, plainly

# Beside the defaults, those that read maps of fused attention in parts, and the z+ rule.
METHODS = (*DEFAULT_METHODS, "rollout", "transformer_attribution", "lrp")
OPTIONS: dict[str, dict[str, Any]] = {"integrated_gradients": {"steps": 3}}
# Two orders of sums in float64, through two blocks.
ROUNDING = 1e-9


def convnext() -> nn.Module:
    from timm.models.convnext import ConvNeXt

    return randomised(ConvNeXt(num_classes=5, depths=(1, 1, 1, 1), dims=(4, 8, 8, 8), patch_size=2))


OF_ZOO = ("vit", "hf_vit", "timm_swin", "bert", "gpt2", "llama")
MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: partial(KINDS[name].build, True) for name in OF_ZOO},
    "convnext": convnext,
}


@pytest.fixture(autouse=True)
def everything_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of fused attention stays fused, and is read a few queries at a time."""
    monkeypatch.setattr(kernels, "LARGEST_WRITTEN_OUT", 0)
    monkeypatch.setattr(kernels, "ENTRIES_AT_A_TIME", 200)


def maps(model: nn.Module, inputs: Any, method: str) -> lrptrain.Relevance | type[Exception]:
    """The map, or the kind of error: a method that cannot serve a model must not do so in one of the two ways."""
    try:
        return lrptrain.attribute(model, inputs, [1, 3], method, **OPTIONS.get(method, {}))
    except UNSUPPORTED as error:
        return type(error)


@pytest.mark.filterwarnings("ignore:integrated_gradients has not converged:lrptrain.RelevanceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_maps_are_those_of_the_plain_implementations(name):
    model = MODELS[name]()
    inputs = KINDS["vit" if name == "convnext" else name].inputs(2)
    served = 0
    for method in METHODS:
        fast = maps(model, inputs, method)
        again = maps(model, inputs, method)  # by what is remembered of the first call
        with plainly():
            plain = maps(model, inputs, method)
        if isinstance(plain, type):
            assert fast is again is plain
            continue
        served += 1
        for found in (fast, again):
            assert isinstance(found, lrptrain.Relevance), method
            assert found.grid == plain.grid
            for one, other in ((found.scores, plain.scores), (found.input, plain.input), (found.logits, plain.logits)):
                assert (one is None) is (other is None)
                assert one is None or relative_error(one, other).max() < ROUNDING, method
    assert served >= 4


def test_plain_means_that_nothing_fast_runs():
    """A recording of fused attention keeps it fused; in plain mode it is written out."""
    model, inputs = KINDS["vit"].build(True), KINDS["vit"].inputs(2)
    fast = lrptrain.record(model, inputs, differentiable=False).tape.kernels
    with plainly():
        assert is_plain()
        assert lrptrain.record(model, inputs, differentiable=False).tape.kernels is None
    assert not is_plain()
    assert fast is not None
    assert len(fast.attentions) == 2


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False), ("", False), ("False", False)])
def test_the_environment_decides(monkeypatch, value, expected):
    monkeypatch.setenv(switch.VARIABLE, value)
    assert runpy.run_path(str(switch.__file__))["is_plain"]() is expected


def test_a_function_and_the_plain_one_that_it_stands_for():
    @switch.instead_of(lambda x: x + 1)
    def faster(x: int) -> int:
        return x + 2

    assert faster(1) == 3
    with plainly():
        assert faster(1) == 2


def test_a_training_step_has_the_gradients_of_attention_that_is_written_out():
    """The second derivative of fused attention, through an intercepted call."""
    from lrptrain.relevance.passes.interception import intercepted

    model, images = KINDS["vit"].build(True), KINDS["vit"].inputs(2)

    def gradients() -> list[torch.Tensor]:
        with intercepted(model, 2, record=True, keeps_maps=False) as calls:
            model(images)
        scores = calls[0].recording().attribute(1, "generic_attention", create_graph=True).scores
        used = [x for x in model.parameters() if x.requires_grad]
        found = torch.autograd.grad(scores.square().sum(), used, allow_unused=True)
        return [x for x in found if x is not None]

    fast = gradients()
    with plainly():
        plain = gradients()
    assert len(fast) == len(plain) > 10
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10 * float(other.abs().max()) + 1e-14)
