import json

import own_vision
import pytest
import torch
from model_zoo import hugging_face, timm_vit
from torch import nn

import lrptrain
from lrptrain.auditing import compare as module
from lrptrain.auditing.compare import (
    COMPARED_METRICS,
    Comparison,
    Row,
    compare_methods,
    comparison_table,
    expected_seconds,
    prepare_cases,
    try_out,
)
from lrptrain.auditing.score import Score
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
    columns = {"image": images, "mask": mask, "label": label}
    return columns, [{name: part[rows] for name, part in columns.items()} for rows in (slice(0, 4), slice(4, samples))]


def test_images_score_as_the_functions_say():
    model = timm_vit(True)
    samples, batches = image_batches()
    cases = prepare_cases(model, batches)
    fill = (-1.0, 0.0, 1.0)
    (row,) = compare_methods(model, cases, ["generic_attention"], fill)
    found = lrptrain.attribute(model, samples["image"], method="generic_attention")
    evidence, _ = token_annotations(samples, found.image_grid)
    assert evidence is not None
    assert found.image_grid is not None
    assert row.scores.keys() == {"EPG", "AUPRC", "pointing game", "positive AUC", "negative AUC"}
    energy = energy_pointing_game(found.scores, evidence)
    assert row.scores["EPG"].value == pytest.approx(energy.mean().item(), abs=1e-6)
    assert row.scores["EPG"].chance == pytest.approx(evidence.chance.mean().item(), abs=1e-6)
    for name, first in (("positive AUC", True), ("negative AUC", False)):
        curve = perturbation_curve(
            model, samples["image"], found.scores, found.image_grid, found.target, most_relevant_first=first, fill=fill
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
    cases = prepare_cases(model, [inputs])
    (row,) = compare_methods(model, cases, ["input_x_gradient"])
    found = lrptrain.attribute(model, inputs, method="input_x_gradient")
    content = mask.bool()  # the texts begin and end differently: there are no special tokens
    probability = text_probability(lambda **given: model(**given).logits, inputs, found.target)
    for name, function in (("comprehensiveness", comprehensiveness), ("sufficiency", sufficiency)):
        expected = function(probability, found.scores, content).mean()
        assert row.scores[name].value == pytest.approx(expected.item(), abs=1e-6)
    assert row.scores.keys() == {"comprehensiveness", "sufficiency"}  # no rationale, no localisation


def test_the_label_is_explained_on_request_where_there_is_one():
    model = timm_vit(True)
    samples, _ = image_batches()
    samples["label"][0] = -1
    (case,) = prepare_cases(model, [samples], "label")
    assert case.target.tolist() == [int(case.logits[0].argmax()), *samples["label"][1:].tolist()]


class NoAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, 3)

    def forward(self, image):
        return self.head(self.patches(image).relu().flatten(2).mean(2))


def test_a_method_that_cannot_serve_the_model_says_why_and_the_others_go_on():
    model = NoAttention().double().eval()
    cases = prepare_cases(model, image_batches()[1])
    names = ["generic_attention", "input_x_gradient"]
    rows = list(compare_methods(model, cases, names, faithfulness=False))
    assert [row.method for row in rows] == names
    assert rows[0].problem
    assert not rows[0].scores
    assert rows[1].problem == ""
    assert rows[1].scores.keys() == {"EPG", "AUPRC", "pointing game"}


def test_a_trial_on_one_sample_says_what_to_expect():
    model = NoAttention().double().eval()
    cases = prepare_cases(model, image_batches()[1])
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
        next(compare_methods(model, prepare_cases(model, image_batches()[1]), ["random", "input_x_gradien"]))


def test_the_model_is_left_as_it_was():
    model = timm_vit(True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    list(compare_methods(model, prepare_cases(model, image_batches()[1]), ["transformer_attribution"]))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_every_metric_has_a_direction():
    assert COMPARED_METRICS["EPG"] is COMPARED_METRICS["negative AUC"] is COMPARED_METRICS["comprehensiveness"] is True
    assert COMPARED_METRICS["positive AUC"] is COMPARED_METRICS["sufficiency"] is False


NAN = float("nan")


def row(method, epg, area=None, samples=9, **changes):
    scores = {"EPG": Score(epg, epg - 0.1, epg + 0.1, samples, 0.25)}
    if area is not None:
        scores["positive AUC"] = Score(area, area - 0.004, area + 0.1, 9)
    return Row(method, True, scores, cost=1.5, seconds=0.1, **changes)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_most_faithful_comes_first_and_columns_are_aligned():
    lines = comparison_table([row("worse", 0.9, 0.5), row("better", 0.1, 0.001)]).splitlines()
    assert cells(lines[0]) == ["method", "class", "EPG ↑", "positive AUC ↓", "cost"]
    assert cells(lines[2]) == ["better", "yes", "0.100 [0.00, 0.20]", "0.001 [0.00, 0.10]", "1.50"]
    assert cells(lines[3])[0] == "worse"
    assert len({len(line) for line in lines[:4]}) == 1


def test_without_faithfulness_the_order_is_by_localisation():
    lines = comparison_table([row("worse", 0.1), row("better", 0.9), row("undefined", NAN, samples=0)]).splitlines()
    assert [cells(line)[0] for line in lines[2:5]] == ["better", "worse", "undefined"]
    assert cells(lines[4])[2] == "-"
    assert "0.250" in lines[-1]


def test_fewer_samples_and_missing_intervals_show():
    text = comparison_table([row("all", 0.5), Row("few", False, {"EPG": Score(0.4, NAN, NAN, 1, 0.2)}, 2.0, 0.1)])
    assert "| 0.400 n=1 " in text
    assert "| no " in text


def test_methods_without_scores_say_why():
    text = comparison_table([row("good", 0.5), Row("bad", True, problem="needs a | and\n  two lines")])
    assert text.endswith("Not possible here:\n\n- `bad`: needs a \\| and two lines")
    assert comparison_table([Row("bad", True, problem="no")]) == "Not possible here:\n\n- `bad`: no"


def test_a_comparison_is_a_table_and_a_short_line():
    about = {"samples": 8, "seed": 0, "target": "predicted", "accuracy": float("nan")}
    compared = Comparison(
        about, ("rollout", "lrp"), [Row("rollout", cost=1.0), Row("lrp", problem="no | rule <for> it")]
    )
    page = compared._repr_html_()
    assert page.count("<tr>") == 2
    assert "no | rule &lt;for&gt; it" in page
    assert repr(compared) == "Comparison(2 of 2 methods, 8 samples)"


def test_the_function_writes_its_table_and_leaves_the_model_as_it_was(tmp_path, capsys):
    net, loader = own_vision.untrained()
    net.train().backbone.patch_embed.requires_grad_(False)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    random_state = torch.get_rng_state()
    compared = lrptrain.compare(net, loader, ["random", "rollout"], max_samples=6, output=tmp_path, verbose=True)
    assert {each.method for each in compared.rows} == {"random", "rollout"}
    assert f"{compared}\n" == (tmp_path / "table.md").read_text(encoding="utf-8")
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (written["samples"], written["seed"], written["target"]) == (6, 0, "predicted")
    said = capsys.readouterr().out
    assert "2 of 2  " in said
    assert compared.table in said
    assert net.backbone.training
    assert {name for name, each in net.named_parameters() if not each.requires_grad} == {
        name for name, _ in net.named_parameters() if "patch_embed" in name
    }
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_what_is_done_is_kept_when_it_is_stopped(tmp_path, monkeypatch, capsys):
    def stopped(*arguments):
        yield next(rows(*arguments))
        raise KeyboardInterrupt

    rows = module.compare_methods
    monkeypatch.setattr(module, "compare_methods", stopped)
    net, loader = own_vision.untrained()
    with pytest.raises(KeyboardInterrupt):
        lrptrain.compare(net, loader, ["random", "rollout"], max_samples=4, output=tmp_path, verbose=True)
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert len(written["methods"]) == 1
    assert "stopped: 1 of 2" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused():
    net, loader = own_vision.untrained()
    with pytest.raises(lrptrain.UnsupportedMethodError, match="rollout"):
        lrptrain.compare(net, loader, ["rolout"])
    with pytest.raises(ValueError, match="max_samples"):
        lrptrain.compare(net, loader, max_samples=0)
    with pytest.raises(ValueError, match=r"could be any of .*: pass the model itself, such as module\.backbone"):
        lrptrain.compare(own_vision.Headless(8), loader, ["random"])
    with pytest.raises(ValueError, match="no sample"):
        lrptrain.compare(net, [], ["random"])
    plain = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3))
    assert not lrptrain.compare(plain, loader, ["input_x_gradient"], max_samples=4, faithfulness=False).rows[0].problem
