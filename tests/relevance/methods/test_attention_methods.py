"""Grad-CAM and attention times gradient, against hooks in a plain model."""

from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import KINDS
from torch import Tensor

import lrptrain
from lrptrain.relevance.methods.gradcam import attention_input

INPUT_OF = {  # the module whose input the last block's attention reads
    "vit": "blocks.1.attn",
    "vit_registers": "blocks.1.attn",
    "vit_mean": "blocks.1.attn",
    "beit": "blocks.1.attn",
    "torchvision_vit": "encoder.layers.encoder_layer_1.self_attention",
    "hf_vit": "vit.layers.1.attention",
    "bert": "bert.encoder.layer.1.attention.self",
    "distilbert": "distilbert.transformer.layer.1.attention",
}


def plain_gradcam(model: Any, inputs: Any, path: str, target: int, prefix: int, lengths: list[int]) -> list[Tensor]:
    """Selvaraju et al. (2017), equations 1 and 2, on what the module reads."""
    kept = {}

    def keep(_module, args, kwargs):
        kept["x"] = args[0] if args else kwargs["hidden_states"]

    handle = model.get_submodule(path).register_forward_pre_hook(keep, with_kwargs=True)
    output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    handle.remove()
    logits = getattr(output, "logits", output)
    (gradient,) = torch.autograd.grad(logits[:, target].sum(), kept["x"])
    maps = []
    for x, slope, length in zip(kept["x"], gradient, lengths, strict=True):
        x, slope = x[prefix : prefix + length], slope[prefix : prefix + length]
        maps.append((x @ slope.mean(0)).relu().detach())
    return maps


@pytest.mark.parametrize("name", INPUT_OF)
def test_gradcam_on_what_the_last_attention_reads(name):
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    prefix = {"vit_mean": 0, "vit_registers": 4}.get(name, 0 if KINDS[name].size is None else 1)
    lengths = [10, 7, 4] if KINDS[name].size is None else [16] * 3
    nonzero = 0
    for target in range(3):
        found = lrptrain.attribute(model, inputs, target, "gradcam").scores
        for score, expected in zip(
            found, plain_gradcam(model, inputs, INPUT_OF[name], target, prefix, lengths), strict=True
        ):
            assert relative_error(score[None, : len(expected)], expected[None]).max() < 1e-9
            assert (score[len(expected) :] == 0).all()
            nonzero += int(bool(expected.any()))
    assert nonzero >= 2


def test_gradcam_of_a_class_token_model_is_not_on_the_last_states():
    recording = lrptrain.record(KINDS["vit"].build(True), KINDS["vit"].inputs())
    assert attention_input(recording) is not recording.token_output


def test_attention_times_gradient_is_the_slope_of_the_logit_as_an_attention_is_scaled():
    """The derivative of the logit when the pooled row's probability of one token is scaled, head by head."""
    model: Any = KINDS["vit"].build(False)
    inputs, heads = KINDS["vit"].inputs(), 4
    for block in (0, 1):
        found = lrptrain.attribute(model, inputs, 2, "attention_x_gradient", block=block).scores
        scale = torch.ones(3, 16, dtype=torch.float64)
        drop = model.blocks[block].attn.attn_drop

        def scaled(_module, args, scale=scale):
            factors = torch.ones_like(args[0])
            factors[:, :, 0, 1:] = scale[:, None]
            return args[0] * factors

        slopes = torch.zeros(3, 16, dtype=torch.float64)
        for token in (0, 5, 15):
            values = []
            for sign in (1, -1):
                scale.fill_(1.0)
                scale[:, token] += sign * 1e-5
                handle = drop.register_forward_pre_hook(scaled)
                with torch.no_grad():
                    values.append(model(inputs)[:, 2])
                handle.remove()
            slopes[:, token] = (values[0] - values[1]) / 2e-5
            assert torch.allclose(found[:, token] * heads, slopes[:, token], atol=1e-8)
        assert (slopes.abs() > 1e-5).any()


def test_a_block_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="block=2 is out of range for a model of 2 blocks"):
        lrptrain.attribute(KINDS["vit"].build(True), KINDS["vit"].inputs(), 2, "attention_x_gradient", block=2)
