import pytest
import torch
from model_zoo import hugging_face, timm_vit
from torch import nn

import lrptrain
from lrptrain.audit.comparison import METRICS, compare, expected_seconds, prepare, try_out
from lrptrain.batch import token_annotations
from lrptrain.metrics import (
    area_under_curve,
    comprehensiveness,
    energy_pointing_game,
    perturbation_curve,
    sufficiency,
    text_probability,
)


def image_batches(samples=7):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(samples, 3, 32, 32, generator=generator).double()
    mask = (torch.rand(samples, 32, 32, generator=generator) < 0.3).long()
    label = torch.arange(samples) % 5
    whole = {"image": images, "mask": mask, "label": label}
    return whole, [{name: part[rows] for name, part in whole.items()} for rows in (slice(0, 4), slice(4, samples))]


def test_images_score_as_the_functions_say():
    model = timm_vit(True)
    whole, batches = image_batches()
    cases = prepare(model, batches)
    fill = (-1.0, 0.0, 1.0)
    (row,) = compare(model, cases, ["generic_attention"], fill)
    found = lrptrain.attribute(model, whole["image"], method="generic_attention")
    evidence, _ = token_annotations(whole, found.grid)
    assert evidence is not None
    assert found.grid is not None
    assert row.scores.keys() == {"EPG", "AUPRC", "pointing game", "positive AUC", "negative AUC"}
    energy = energy_pointing_game(found.scores, evidence)
    assert row.scores["EPG"].value == pytest.approx(energy.mean().item(), abs=1e-6)
    assert row.scores["EPG"].chance == pytest.approx(evidence.chance.mean().item(), abs=1e-6)
    for name, first in (("positive AUC", True), ("negative AUC", False)):
        curve = perturbation_curve(
            model, whole["image"], found.scores, found.grid, found.target, most_relevant_first=first, fill=fill
        )
        assert row.scores[name].value == pytest.approx(area_under_curve(curve).mean().item(), abs=1e-6)
    assert row.scores["EPG"].low < row.scores["EPG"].value < row.scores["EPG"].high
    assert row.cost > 0
    assert row.seconds > 0


def test_texts_score_as_the_functions_say():
    model = hugging_face("BertForSequenceClassification", True)
    ids = torch.randint(5, 90, (3, 10), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(10) < torch.tensor([10, 7, 4])[:, None]).long()
    inputs = {"input_ids": ids * mask, "attention_mask": mask}
    cases = prepare(model, [inputs])
    (row,) = compare(model, cases, ["input_x_gradient"])
    found = lrptrain.attribute(model, inputs, method="input_x_gradient")
    content = mask.bool() & (torch.arange(10) > 0) & (torch.arange(10) < torch.tensor([9, 6, 3])[:, None])
    probability = text_probability(lambda **given: model(**given).logits, inputs, found.target)
    for name, function in (("comprehensiveness", comprehensiveness), ("sufficiency", sufficiency)):
        expected = function(probability, found.scores, content).mean()
        assert row.scores[name].value == pytest.approx(expected.item(), abs=1e-6)
    assert row.scores.keys() == {"comprehensiveness", "sufficiency"}  # no rationale, no localisation


def test_the_label_is_explained_on_request_where_there_is_one():
    model = timm_vit(True)
    whole, _ = image_batches()
    whole["label"][0] = -1
    (case,) = prepare(model, [whole], "label")
    assert case.target.tolist() == [int(case.logits[0].argmax()), *whole["label"][1:].tolist()]


class NoAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, 3)

    def forward(self, image):
        return self.head(self.patches(image).relu().flatten(2).mean(2))


def test_a_method_that_cannot_serve_the_model_says_why_and_the_others_go_on():
    model = NoAttention().double().eval()
    cases = prepare(model, image_batches()[1])
    names = ["generic_attention", "input_x_gradient"]
    rows = list(compare(model, cases, names, faithfulness=False))
    assert [row.method for row in rows] == names
    assert rows[0].problem
    assert not rows[0].scores
    assert rows[1].problem == ""
    assert rows[1].scores.keys() == {"EPG", "AUPRC", "pointing game"}


def test_a_trial_on_one_sample_says_what_to_expect():
    model = NoAttention().double().eval()
    cases = prepare(model, image_batches()[1])
    trials = try_out(model, cases[0], ["rollout", "random", "input_x_gradient"])
    assert {row.method for row in trials[:2]} == {"random", "input_x_gradient"}
    assert 0 < trials[0].seconds < trials[1].seconds
    assert trials[2].problem
    assert [row.class_specific for row in trials] == [row.method == "input_x_gradient" for row in trials]
    singly = 7 * trials[0].seconds
    assert expected_seconds(trials[0], cases, faithfulness=False) == pytest.approx(singly)
    passes = 6 * sum(case.seconds for case in cases)
    assert expected_seconds(trials[0], cases, faithfulness=True) == pytest.approx(singly + passes)


def test_an_unknown_method_is_told_before_any_is_run():
    model = NoAttention().double().eval()
    with pytest.raises(lrptrain.UnsupportedMethodError, match="input_x_gradient"):
        next(compare(model, prepare(model, image_batches()[1]), ["random", "input_x_gradien"]))


def test_the_model_is_left_as_it_was():
    model = timm_vit(True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    list(compare(model, prepare(model, image_batches()[1]), ["transformer_attribution"]))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_every_metric_has_a_direction():
    assert METRICS["EPG"] is METRICS["negative AUC"] is METRICS["comprehensiveness"] is True
    assert METRICS["positive AUC"] is METRICS["sufficiency"] is False
