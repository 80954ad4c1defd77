"""One number per sample read as two classes, beside a model whose last layer has two outputs."""

import copy
from typing import Any

import pytest
import torch
from small_models import patches, tiny_vit
from torch import Tensor, nn

import lrptrain
from lrptrain.relevance.output.logit_view import LogitView, active_view, one_logit_as

TARGET = torch.tensor([0, 1, 0])


def one_logit() -> Any:
    model = tiny_vit(num_classes=1).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)).double()
    return model


def two_logits(model: Any, slope: float = 0.5, offset: float = 0.0) -> Any:
    """The same model with a last layer of two outputs."""
    both = copy.deepcopy(model)
    both.head = nn.Linear(16, 2).double()
    with torch.no_grad():
        both.head.weight.copy_(torch.cat([-model.head.weight, model.head.weight]) * slope)
        both.head.bias.copy_(torch.cat([-model.head.bias * slope - offset, model.head.bias * slope + offset]))
    return both


class Around(nn.Module):
    """A model whose output goes through a function."""

    def __init__(self, model: nn.Module, function):
        super().__init__()
        self.model = model
        self.function = function

    def forward(self, image: Tensor) -> Tensor:
        return self.function(self.model(image))


POST_NORM = {"atb_ff_res_ln_norm", "attn_res_ln_norm"}
"""Methods that do not exist for blocks whose norms come first, as those of this model."""


@pytest.mark.parametrize("method", [method for method in lrptrain.methods() if method not in POST_NORM])
def test_maps_are_those_of_a_layer_with_two_outputs(method):
    """Of each class, by each method: some tell weights for from weights against a logit."""
    model = one_logit()
    expected = lrptrain.attribute(two_logits(model), patches(), TARGET, method)
    with one_logit_as(LogitView()):
        relevance = lrptrain.attribute(model, patches(), TARGET, method)
    scale = expected.scores.abs().max()
    torch.testing.assert_close(relevance.scores / scale, expected.scores / scale, rtol=0, atol=1e-12)
    torch.testing.assert_close(relevance.logits, expected.logits, rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ("function", "slope", "offset"),
    [
        (lambda z: z[:, 0], 0.5, 0.0),
        (lambda z: z.squeeze(-1).float().double(), 0.5, 0.0),
        (lambda z: z / 0.25, 2.0, 0.0),
        (lambda z: -(z * 2 + 3).view(-1), -1.0, -1.5),
        (lambda z: torch.mul(torch.tensor(2.0).double(), z), 1.0, 0.0),
        (lambda z: 1 - z, -0.5, 0.5),
    ],
    ids=["entry", "squeezed", "temperature", "negated", "constant first", "taken from one"],
)
def test_what_follows_the_last_layer_belongs_to_it(function, slope, offset):
    model = one_logit()
    expected = lrptrain.attribute(two_logits(model, slope, offset), patches(), TARGET, "lrp").scores
    with one_logit_as(LogitView()):
        scores = lrptrain.attribute(Around(model, function), patches(), TARGET, "lrp").scores
    torch.testing.assert_close(scores / expected.abs().max(), expected / expected.abs().max(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [torch.tanh, lambda z: torch.div(torch.ones(1).double(), z), lambda z: z * z],
    ids=["tanh", "inverse", "square"],
)
def test_what_is_no_multiple_is_left_behind_the_layer(function):
    model = Around(one_logit(), function)

    def both(image):
        return torch.cat([-model(image), model(image)], 1) / 2

    expected = lrptrain.attribute(Around(nn.Identity(), both), patches(), TARGET, "input_x_gradient")
    with one_logit_as(LogitView()):
        relevance = lrptrain.attribute(model, patches(), TARGET, "input_x_gradient")
    torch.testing.assert_close(relevance.scores, expected.scores, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(relevance.logits, expected.logits, rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    "function", [torch.sigmoid, lambda z: z.sigmoid()[:, 0], nn.Sequential(nn.Sigmoid(), nn.Flatten(0))]
)
def test_a_probability_is_not_read_as_a_logit(function):
    model = Around(one_logit(), function)
    with one_logit_as(LogitView()), pytest.raises(lrptrain.UnsupportedModelError, match="sigmoid of a logit"):
        lrptrain.attribute(model, patches(), TARGET)
    assert lrptrain.attribute(model, patches()).logits.shape == (
        3,
        1,
    )  # a number is a number where nobody reads classes


def test_offsets_move_the_boundary():
    model = one_logit()
    with one_logit_as(LogitView((-2.0, 2.0), (6.0, -6.0))):  # 4 (z - 3) is the logit
        recording = lrptrain.record(model, patches())
        torch.testing.assert_close(recording.logits.softmax(1)[:, 1:], (4 * (model(patches()) - 3)).sigmoid())
        scores = recording.attribute(1, "attnlrp").scores
    expected = lrptrain.attribute(two_logits(model, 2.0, -6.0), patches(), 1, "attnlrp").scores
    torch.testing.assert_close(scores, expected, rtol=1e-10, atol=1e-12)


def test_gradients_of_a_loss_on_maps_reach_the_last_layer():
    """The gradient of a map's sum of squares, at the weight of one output and at those of two."""
    gradients = []
    model = one_logit()
    for net, view in ((model, LogitView()), (two_logits(model), None)):
        with one_logit_as(view):
            scores = lrptrain.attribute(net, patches(), TARGET, "attnlrp", create_graph=True).scores
        gradients.append(torch.autograd.grad(scores.square().sum(), [net.head.weight, net.patch_embed.proj.weight]))
    (of_one, early), (of_two, expected_early) = gradients
    torch.testing.assert_close(early, expected_early, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(of_one[0], (of_two[1] - of_two[0]) / 2, rtol=1e-9, atol=1e-12)


def test_several_logits_and_functions_are_read_as_they_are():
    model = tiny_vit().double().eval()
    plain = lrptrain.attribute(model, patches(), 1)
    logit = lrptrain.attribute(one_logit(), patches())
    with one_logit_as(LogitView()):
        torch.testing.assert_close(lrptrain.attribute(model, patches(), 1).logits, plain.logits)
        of_function = lrptrain.attribute(one_logit(), patches(), target=lambda output: output[:, 0])
        with one_logit_as(None):
            assert lrptrain.record(one_logit(), patches()).logits.shape == (3, 1)
    torch.testing.assert_close(of_function.scores, logit.scores, rtol=1e-9, atol=1e-12)
    assert active_view() is None


@pytest.mark.parametrize("method", ["attnlrp", "lrp", "transformer_attribution", "leave_one_out"])
def test_a_column_of_several_is_read_as_if_the_model_had_no_other(method):
    torch.manual_seed(3)
    several = one_logit()
    several.head = nn.Linear(16, 4).double()
    single = copy.deepcopy(several)
    single.head = nn.Linear(16, 1).double()
    with torch.no_grad():
        single.head.weight.copy_(several.head.weight[2:3])
        single.head.bias.copy_(several.head.bias[2:3])
    with one_logit_as(LogitView()):
        expected = lrptrain.attribute(single, patches(), TARGET, method)
    with one_logit_as(LogitView(column=2)):
        relevance = lrptrain.attribute(several, patches(), TARGET, method)
    scale = expected.scores.abs().max()
    torch.testing.assert_close(relevance.scores / scale, expected.scores / scale, rtol=0, atol=1e-12)
    torch.testing.assert_close(relevance.logits, expected.logits, rtol=1e-12, atol=1e-14)
    if method == "attnlrp":  # of what has the label: half of the engine's own map of that logit
        plain = lrptrain.attribute(several, patches(), 2, method).scores
        torch.testing.assert_close(relevance.scores[1], plain[1] / 2, rtol=1e-9, atol=1e-12)


def test_a_view_that_needs_other_logits_refuses():
    with one_logit_as(LogitView(column=3)), pytest.raises(lrptrain.UnsupportedModelError, match="more than 3 labels"):
        lrptrain.record(tiny_vit().double().eval(), patches()).logits  # noqa: B018
    with one_logit_as(LogitView(required=True)), pytest.raises(ValueError, match="reads one number per sample"):
        lrptrain.attribute(tiny_vit().double().eval(), patches())


@pytest.mark.parametrize("method", ["lrp", "partial_lrp", "transformer_attribution", "attnlrp", "input_x_gradient"])
def test_the_target_of_a_binary_classifier_explains_either_class(method):
    """Of each class the map of a model with the logits -z and z, also by rules that tell the signs of weights apart."""
    model = one_logit()
    expected = lrptrain.attribute(two_logits(model, slope=1.0), patches(), TARGET, method)
    relevance = lrptrain.attribute(
        model, patches(), lrptrain.targets.BinaryClassifierOutputTarget(TARGET.tolist()), method
    )
    scale = expected.scores.abs().max()
    torch.testing.assert_close(relevance.scores / scale, expected.scores / scale, rtol=0, atol=1e-12)
    torch.testing.assert_close(relevance.logits, expected.logits.gather(1, TARGET[:, None]), rtol=1e-13, atol=0)
    assert relevance.target.tolist() == [0, 0, 0]
