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
    model.add_module("unused", nn.Linear(2, 2))
    for method in ("attnlrp", "input_x_gradient"):
        with pytest.raises(lrptrain.UnsupportedModelError, match=r"the layer 'unused' was not called"):
            lrptrain.attribute(model, images, 1, method, layer="unused")
    with pytest.raises(lrptrain.UnsupportedMethodError, match="layer"):
        lrptrain.attribute(model, images, 1, "rollout", layer="blocks.1")
    with pytest.raises(lrptrain.UnsupportedMethodError, match="words of a text"):
        lrptrain.attribute(model, images, 1, "attnlrp", layer="blocks.1", embeddings="token")


def test_a_convolution_and_its_batch_norm_are_two_layers():
    model = randomised(nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 3)))
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    for layer in ("0", "1"):
        mine = lrptrain.attribute(model, images, 1, "input_x_gradient", layer=layer).input
        assert isinstance(model, nn.Sequential)
        theirs = LayerGradientXActivation(model, model[int(layer)]).attribute(images, target=1)
        assert (mine - theirs).abs().max() < 1e-12 * theirs.abs().max()
    assert lrptrain.attribute(model, images, 1, "attnlrp", layer="1").grid == (6, 6)
    with pytest.raises(lrptrain.UnsupportedModelError, match="merged with its batch norm"):
        lrptrain.attribute(model, images, 1, "attnlrp", layer="0")


@pytest.mark.parametrize(
    ("layers", "shape", "layer", "tokens"),
    [
        ([nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 18, 3)], (2, 4, 20), "0", 18),
        ([nn.Linear(4, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 20, 3)], (2, 20, 4), "0", 20),
        ([nn.Linear(3, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3)], (2, 6, 6, 3), "0", 36),
    ],
)
def test_a_score_is_a_sum_over_features(layers, shape, layer, tokens):
    model, inputs = randomised(nn.Sequential(*layers)), torch.randn(*shape, dtype=torch.float64)
    assert lrptrain.attribute(model, inputs, 1, "input_x_gradient", layer=layer).scores.shape == (2, tokens)


def test_layers_that_pass_on_what_they_get_have_its_relevance():
    model, inputs = KINDS["bert"].build(True), KINDS["bert"].inputs()
    words = lrptrain.attribute(model, inputs, 1, "attnlrp", layer="bert.embeddings.word_embeddings")
    assert torch.allclose(words.scores, lrptrain.attribute(model, inputs, 1, "attnlrp", embeddings="token").scores)
    vit, images = KINDS["vit"].build(True), KINDS["vit"].inputs()
    dropped, block = (lrptrain.attribute(vit, images, 1, "attnlrp", layer=x).input for x in ("pos_drop", "norm_pre"))
    assert dropped is not None
    assert block is not None
    assert torch.equal(dropped, block)


class Aside(nn.Module):
    """Hands on a pair, and keeps something beside it that is read later."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 8), nn.Linear(4, 5)

    def forward(self, x):
        self.states = self.other(x)
        return self.one(x), x * 2


class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.aside, self.head = Aside(), nn.Linear(17, 3)
        randomised(self)

    def forward(self, x):
        return self.head(torch.cat([*self.aside(x), self.aside.states], -1).mean(1))


def test_of_several_results_the_first_is_meant():
    for method in ("attnlrp", "input_x_gradient"):
        found = lrptrain.attribute(Reads(), torch.randn(2, 6, 4, dtype=torch.float64), 1, method, layer="aside")
        assert found.input is not None
        assert found.input.shape == (2, 6, 8)


class Branches(nn.Module):
    """A layer's output goes on as a copy on one way, and as it is on the other."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        randomised(self)

    def forward(self, x):
        states = self.first(x)
        return self.head((states + self.second(states.clone())).mean(1))


def test_a_layers_own_value_is_meant_not_a_copy_on_one_of_several_ways():
    model, inputs = without_biases(Branches()), torch.randn(2, 5, 4, dtype=torch.float64)
    found = lrptrain.attribute(model, inputs, 1, "attnlrp", layer="first")
    assert found.input is not None
    assert torch.allclose(found.input.flatten(1).sum(1), found.logits[:, 1], rtol=1e-9)
