"""Several maps from one forward pass, contrastive targets, and maps that can be trained through."""

from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS
from torch import nn

import lrptrain
from lrptrain.relevance.registry import differentiable, get_method

# Norm-based forms that do not exist for blocks of this order.
MISSING = {"vit": ("attn_res_ln_norm", "atb_ff_res_ln_norm"), "bert": ("atb_norm",)}
TRAINABLE: list[tuple[str, str, dict[str, Any]]] = [
    *((name, method, {}) for name in MISSING for method in differentiable() if method not in MISSING[name]),
    ("vit", "atb_ff_res_norm", {"project": True}),
    ("bert", "atb_ff_res_ln_norm", {"project": True}),
]


def recorded(name: str = "vit") -> tuple[nn.Module, Any, lrptrain.Recording]:
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    return model, inputs, lrptrain.record(model, inputs)


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_targets_and_methods_share_one_forward_pass(name):
    model, inputs, record = recorded(name)
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    for method in ("transformer_attribution", "generic_attention", "attnlrp", "rollout", "attention_norm"):
        for target in (1, [0, 3, 4], None):
            found = record.attribute(target, method)
            assert not calls
            expected = lrptrain.attribute(model, inputs, target, method)
            calls.clear()
            assert relative_error(found.scores, expected.scores).max() < 1e-9
            assert torch.equal(found.target, expected.target)
    assert relative_error(record.logits, found.logits).max() == 0


LINEAR: list[tuple[str, dict[str, Any]]] = [
    ("input_x_gradient", {}),
    ("attention_x_gradient", {}),
    ("integrated_gradients", {"steps": 4}),
    ("attnlrp", {}),
    ("attnlrp", {"form": "explicit"}),
    ("lrp", {}),
    ("lrp", {"composite": "chefer"}),
]


@pytest.mark.filterwarnings("ignore:integrated_gradients has not converged")  # of four steps
@pytest.mark.parametrize(("method", "options"), LINEAR)
@pytest.mark.parametrize("name", ["vit", "bert"])
def test_methods_that_are_linear_in_the_target_subtract_the_other(name, method, options):
    _, _, record = recorded(name)
    found = record.attribute([0, 3, 4], method, other=[1, 1, 2], **options)
    first, second = (record.attribute(target, method, **options).scores for target in ([0, 3, 4], [1, 1, 2]))
    assert relative_error(found.scores, first - second).max() < 1e-9
    assert found.other is not None
    assert found.other.tolist() == [1, 1, 2]


@pytest.mark.parametrize("method", ["transformer_attribution", "generic_attention", "lrp", "gradcam", "leave_one_out"])
@pytest.mark.parametrize("name", ["vit", "vit_mean", "bert"])
def test_the_other_class_changes_the_map_of_every_method_that_knows_classes(name, method):
    _, _, record = recorded(name)
    alone, against = record.attribute(1, method).scores, record.attribute(1, method, other=2).scores
    assert relative_error(alone, against).min() > 1e-6  # beside the identity of every residual sum; float64 has 1e-16
    assert (against != 0).any(1).all()
    assert against.norm() < 1e3 * alone.norm()


def test_the_target_and_the_other_must_differ():
    with pytest.raises(ValueError, match=r"same class in samples \[1\]: their difference is 0"):
        recorded()[2].attribute([0, 3, 4], other=[1, 3, 0])
    with pytest.raises(ValueError, match=r"9.* is out of range for 5 classes"):
        recorded()[2].attribute(0, other=9)


@pytest.mark.parametrize(("name", "method", "options"), TRAINABLE)
def test_the_gradient_of_a_map_is_its_rate_of_change(name, method, options):
    """Along one random direction of all parameters, by central differences."""
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    generator = torch.Generator().manual_seed(3)
    parameters = list(model.parameters())
    directions = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]

    def loss(create_graph: bool = False) -> torch.Tensor:
        found = lrptrain.attribute(model, inputs, [0, 3, 4], method, create_graph=create_graph, **options)
        scores = found.scores
        weights = torch.linspace(-1, 2, scores.shape[1], dtype=scores.dtype)
        return (scores * weights).sum()

    def rate(step: float) -> float:
        values = []
        for sign in (1, -1):
            move(parameters, directions, sign * step)
            values.append(loss().item())
            move(parameters, directions, -sign * step)
        return (values[0] - values[1]) / (2 * step)

    gradients = torch.autograd.grad(loss(create_graph=True), parameters, allow_unused=True)
    slope = sum((g * d).sum().item() for g, d in zip(gradients, directions, strict=True) if g is not None)
    # The maps are strongly curved, and have kinks: where a step is too long, a shorter one tells.
    assert any(abs(slope - rate(step)) < 1e-3 * abs(slope) for step in (1e-6, 1e-7, 1e-8))


def move(parameters: list[nn.Parameter], directions: list[torch.Tensor], by: float) -> None:
    with torch.no_grad():
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.add_(direction, alpha=by)


def test_maps_without_a_graph_say_so():
    model, inputs, _ = recorded()
    assert not lrptrain.attribute(model, inputs, 0).scores.requires_grad
    with pytest.raises(lrptrain.UnsupportedMethodError, match=r"random cannot be differentiated; these can: .*attnlrp"):
        lrptrain.attribute(model, inputs, 0, "random", create_graph=True)


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_frugal_recording_gives_the_maps_of_separate_calls_one_after_the_other(name):
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    record = lrptrain.record(model, inputs, differentiable=False)
    for method in lrptrain.methods():
        entry = get_method(method, {})
        # Those that run the model again and again need nothing of the recording but its input.
        if not entry.class_specific or "at_once" in entry.options:
            continue
        record.attribute([0, 3, 4], method)
        found = record.attribute([1, 1, 2], method).scores  # on what the first walk has left
        expected = lrptrain.attribute(model, inputs, [1, 1, 2], method).scores
        assert relative_error(found, expected).max() < 1e-9, method


def test_a_frugal_recording_has_no_graph_to_train_through():
    record = lrptrain.record(KINDS["vit"].build(True), KINDS["vit"].inputs(), differentiable=False)
    with pytest.raises(ValueError, match="record with differentiable=True"):
        record.attribute(0, "attnlrp", create_graph=True)
