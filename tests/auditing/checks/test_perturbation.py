import pytest
import torch
from audited import context, registered
from model_zoo import KINDS, hugging_face, select, timm_vit
from small_models import patches, tiny_vit
from torch import nn

import lrptrain
from lrptrain.auditing.checks.perturbation import order_score, random_order_score
from lrptrain.auditing.score import summarize
from lrptrain.metrics import area_under_curve, comprehensiveness, perturbation_curve, sufficiency, text_probability


class Corner(nn.Module):
    """Two classes told apart by the mean of the upper left patch alone; nothing else of the image counts."""

    def forward(self, image):
        answer = image[:, :, :4, :4].mean((1, 2, 3))
        return torch.stack([-answer, answer], 1)


def texts():
    """Texts of different lengths, with special tokens at their ends."""
    inputs = KINDS["bert"].inputs()
    inputs["input_ids"][:, 0] = 2
    inputs["input_ids"][torch.arange(3), inputs["attention_mask"].sum(1) - 1] = 3
    return inputs


def gain(model, inputs, method):
    """How much better the order of a method is than two random ones."""
    found = lrptrain.attribute(model, inputs, method=method)
    worth = order_score(model, inputs, found.target, found.scores, found.image_grid)
    return worth - random_order_score(model, inputs, found.target, random_maps=2)


def test_a_true_order_is_worth_much_and_its_reverse_as_little():
    images = patches(6).abs()
    scores = torch.zeros(6, 16, dtype=torch.float64)
    scores[:, 0] = 1
    target = torch.ones(6, dtype=torch.long)
    true = order_score(Corner(), images, target, scores, (4, 4), fill=-1.0)
    false = order_score(Corner(), images, target, -scores, (4, 4), fill=-1.0)
    assert true.min() > 0.5
    assert false.max() < -0.5


def test_images_by_the_definition():
    model, images = timm_vit(True), KINDS["vit"].inputs(5)
    found = lrptrain.attribute(model, images, method="generic_attention")
    areas = [
        area_under_curve(
            perturbation_curve(model, images, found.scores, (4, 4), found.target, most_relevant_first=first)
        )
        for first in (False, True)
    ]
    worth = order_score(model, images, found.target, found.scores, found.image_grid)
    torch.testing.assert_close(worth, areas[0] - areas[1])


def test_texts_by_the_definition():
    model, inputs = hugging_face("BertForSequenceClassification", True), texts()
    found = lrptrain.attribute(model, inputs, method="input_x_gradient")
    content = torch.zeros_like(inputs["attention_mask"], dtype=torch.bool)
    for row, length in enumerate((10, 7, 4)):
        content[row, 1 : length - 1] = True
    probability = text_probability(lambda **given: model(**given).logits, inputs, found.target)
    expected = comprehensiveness(probability, found.scores, content) - sufficiency(probability, found.scores, content)
    torch.testing.assert_close(order_score(model, inputs, found.target, found.scores, None), expected)


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_batch_equals_singles(name):
    model, inputs = KINDS[name].build(True), texts() if name == "bert" else KINDS[name].inputs(3)
    together = gain(model, inputs, "generic_attention")
    alone = [gain(model, select(inputs, slice(i, i + 1)), "generic_attention") for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-9, rtol=0)


def test_random_orders_gain_nothing_and_differ_from_the_method_of_that_name():
    model = tiny_vit().double().eval()
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(200, 3, 16, 16, generator=generator, dtype=torch.float64)
    found = gain(model, images, "random")
    assert found.abs().max() > 0
    assert found.mean().abs() < 4 * found.std() / 200**0.5
    target = model(images[:4]).argmax(1)
    worths = [random_order_score(model, images[:4], target, random_maps=1, seed=seed) for seed in range(8)]
    assert len({tuple(worth.tolist()) for worth in worths}) > 1


def test_what_cannot_be_is_told():
    model, inputs = hugging_face("BertForSequenceClassification", True), texts()
    with pytest.raises(ValueError, match="random_maps"):
        random_order_score(model, inputs, torch.zeros(3, dtype=torch.long), random_maps=0)
    with pytest.raises(ValueError, match="attention_mask"):
        order_score(model, {"input_ids": inputs["input_ids"]}, torch.zeros(3), torch.zeros(3, 10), None)


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_unit_is_the_gain_of_all_batches(name):
    audit = context(name)
    measured = torch.tensor(registered("perturbation").run(audit, "input_x_gradient")["gain"])
    expected = [
        order_score(audit.model, each.inputs, each.target, found.scores, found.image_grid)
        - random_order_score(audit.model, each.inputs, each.target, random_maps=1)
        for each, found in zip(audit.batches, audit.maps("input_x_gradient"), strict=True)
    ]
    torch.testing.assert_close(measured.double(), torch.cat(expected).double(), atol=1e-5, rtol=0)


def test_a_gain_that_is_not_surely_positive_decides():
    check = registered("perturbation").check(summarize([-0.1, 0.2, 0.3]))
    assert (check.passed, check.decisive) == (False, True)
    assert registered("perturbation").check(summarize([0.2, 0.3, 0.2])).passed
