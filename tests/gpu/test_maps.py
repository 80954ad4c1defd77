"""A map on the GPU is the CPU's, up to the arithmetic."""

import warnings
from typing import Any

import pytest
import torch
from model_zoo import KINDS
from on_device import both, distance, in_small

import lrptrain

METHODS = ("attnlrp", "generic_attention", "transformer_attribution", "input_x_gradient")
HALF_KINDS = ("vit", "bert", "hf_vit", "modernbert", "timm_swin", "llama")


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", in_small(KINDS))
def test_float32(kind, method, device):
    try:
        cpu, here = (lrptrain.attribute(model, inputs, 1, method) for model, inputs in both(kind, device))
    except lrptrain.UnsupportedMethodError:
        pytest.skip("this model has no such map on any device")
    assert here.scores.device == device
    assert distance(here.logits, cpu.logits) < 1e-4
    # Where products of gradients cancel, or quotients do, float32 itself is that far from float64.
    whole = lrptrain.attribute(KINDS[kind].build(True), KINDS[kind].inputs(), 1, method)
    assert distance(here.scores, cpu.scores) < 1e-4 + 3 * distance(cpu.scores, whole.scores)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("method", [*lrptrain.methods()])
@pytest.mark.parametrize("kind", ["vit", "bert"])
@pytest.mark.filterwarnings("ignore:integrated_gradients has not converged")
def test_every_method(kind, method, device):
    if method in ("lime", "kernel_shap", "random", "smoothgrad"):
        given: dict[str, Any] = {"smoothgrad": {"samples": 2}, "random": {"seed": 0}}.get(method, {})
        model, inputs = both(kind, device)[1]
        pytest.importorskip("captum") if method in ("lime", "kernel_shap") else None
        found = lrptrain.attribute(model, inputs, 1, method, **given)
        assert found.scores.device == device
        assert found.scores.isfinite().all()
        return
    options: dict[str, Any] = {"steps": 4} if method == "integrated_gradients" else {}
    try:
        cpu, here = (lrptrain.attribute(each[0], each[1], 1, method, **options) for each in both(kind, device))
    except lrptrain.UnsupportedMethodError:
        pytest.skip("this model has no such map on any device")
    assert distance(here.scores, cpu.scores) < 1e-3


@pytest.mark.parametrize("method", ["attnlrp", "generic_attention", "input_x_gradient"])
@pytest.mark.parametrize("kind", in_small(HALF_KINDS))
def test_bfloat16_is_as_far_from_float32_as_on_the_cpu(kind, method, device):
    exact, _ = both(kind, device)
    rounded = both(kind, device, torch.bfloat16)
    whole = lrptrain.attribute(exact[0], exact[1], 1, method).scores
    cpu, here = (distance(lrptrain.attribute(each[0], each[1], 1, method).scores, whole) for each in rounded)
    # Both round to 8 bits after each operation, in another order: a few times the other's error, or a percent.
    assert here < 3 * cpu + 0.01


@pytest.mark.parametrize("method", ["attnlrp", "generic_attention"])
def test_autocast_changes_no_map(method, device):
    model, inputs = both("vit", device)[1]
    plain = lrptrain.attribute(model, inputs, 1, method)
    with torch.autocast(device.type, torch.bfloat16):
        under = lrptrain.attribute(model, inputs, 1, method)
        assert torch.is_autocast_enabled(device.type)
    assert distance(under.scores, plain.scores) < 1e-5


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("kind", ["vit", "bert"])
def test_a_batch_equals_its_samples(kind, device):
    from model_zoo import select

    model, inputs = both(kind, device)[1]
    together = lrptrain.attribute(model, inputs, 1).scores
    apart = torch.cat([lrptrain.attribute(model, select(inputs, slice(i, i + 1)), 1).scores for i in range(3)])
    assert distance(together, apart) < 1e-4


def test_inputs_of_another_device_are_an_error_of_one_line(device):
    if device.type == "cpu":
        pytest.skip("there is one device")
    model, _ = both("vit", device)[1]
    _, inputs = both("vit", device)[0]
    with pytest.raises(Exception, match=r"device|cuda") as caught:
        lrptrain.attribute(model, inputs, 1)
    print(type(caught.value).__name__, caught.value)


@pytest.mark.parametrize("kind", ["vit", "bert", "modernbert"])
def test_python_waits_for_few_numbers(kind, device):
    """Once a block or so; for labels of tokens, after each operation, it would be hundreds of times."""
    if device.type == "cpu":
        pytest.skip("nothing is waited for")
    model, inputs = both(kind, device)[1]
    lrptrain.attribute(model, inputs, 1, "generic_attention")
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            lrptrain.attribute(model, inputs, 1, "generic_attention")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert 0 < sum("synchroniz" in str(each.message) for each in found) < 50
