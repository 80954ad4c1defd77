"""Relevance at a layer: equal to captum's, to that of the rest of the model, and conserved from layer to layer."""

import pytest
import torch
from captum.attr import LayerGradientXActivation
from golden_cases import relative_error
from model_zoo import KINDS, randomised
from torch import nn

import lrptrain

LAYERS = ("patch_embed", "blocks.0", "blocks.1.mlp", "blocks.1.mlp.fc1", "blocks.0.attn", "norm", "head")


def without_biases(model: nn.Module) -> nn.Module:
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


@pytest.mark.parametrize("layer", LAYERS)
def test_gradient_times_activation_is_captums(layer):
    model, images = KINDS["vit"].build(True), KINDS["vit"].inputs()
    mine = lrptrain.attribute(model, images, 1, "input_x_gradient", layer=layer)
    assert mine.input is not None
    theirs = LayerGradientXActivation(model, model.get_submodule(layer)).attribute(images, target=1)
    assert mine.input.shape == theirs.shape
    assert (mine.input - theirs).abs().max() < 1e-12 * theirs.abs().max()


def network() -> nn.Sequential:
    convolutions = [nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 8, 3, 2, 1), nn.ReLU()]
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(8 * 16, 12), nn.ReLU(), nn.Linear(12, 4))
    randomised(model)
    return model


@pytest.mark.parametrize("method", ["lrp", "epsilon_lrp", "gamma_lrp", "attnlrp", "cp_lrp"])
def test_it_is_the_relevance_of_the_input_of_what_comes_behind(method):
    model, images = network(), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    options = {"patch_rule": None} if method == "lrp" else {}
    mine = lrptrain.attribute(model, images, 2, method, layer="3", **options)
    states = model[:4](images).detach()
    assert mine.input is not None
    assert mine.input.shape == states.shape
    behind = lrptrain.attribute(model[5:], states.flatten(1), 2, method, **options)
    assert relative_error(mine.input.flatten(1), behind.scores).max() < 1e-9
    assert mine.grid == (4, 4)
    assert torch.equal(mine.scores, mine.input.sum(1).flatten(1))


def test_the_last_layers_hold_the_logit():
    model, images = without_biases(KINDS["vit"].build(True)), KINDS["vit"].inputs()
    for layer in ("blocks.1", "norm", "head"):
        found = lrptrain.attribute(model, images, 1, "attnlrp", layer=layer)
        assert found.input is not None
        assert torch.allclose(found.input.flatten(1).sum(1), found.logits[:, 1], rtol=1e-9), layer


def test_scores_are_of_the_patches_where_a_layer_holds_them():
    model, images = KINDS["vit"].build(True), KINDS["vit"].inputs()
    block = lrptrain.attribute(model, images, 1, "attnlrp", layer="blocks.0")
    assert block.grid == KINDS["vit"].grid
    assert block.input is not None
    assert torch.allclose(block.scores, block.input[:, 1:].sum(-1))  # the class token aside


def test_of_a_text_padding_has_none():
    model, inputs = KINDS["bert"].build(True), KINDS["bert"].inputs()
    found = lrptrain.attribute(model, inputs, 1, "attnlrp", layer="bert.encoder.layer.0")
    assert found.scores.shape == inputs["input_ids"].shape
    assert not found.scores[inputs["attention_mask"] == 0].any()


def test_layers_that_cannot_be_served_are_named():
    model, images = KINDS["vit"].build(True), KINDS["vit"].inputs()
    with pytest.raises(ValueError, match=r"unknown layer 'block.1'; did you mean blocks.1"):
        lrptrain.attribute(model, images, 1, "attnlrp", layer="block.1")
    with pytest.raises(lrptrain.UnsupportedModelError, match=r"no operation of the layer 'blocks.0.ls1'"):
        lrptrain.attribute(model, images, 1, "attnlrp", layer="blocks.0.ls1")
    with pytest.raises(lrptrain.UnsupportedMethodError, match="layer"):
        lrptrain.attribute(model, images, 1, "rollout", layer="blocks.1")
    with pytest.raises(lrptrain.UnsupportedMethodError, match="words of a text"):
        lrptrain.attribute(model, images, 1, "attnlrp", layer="blocks.1", embeddings="token")
