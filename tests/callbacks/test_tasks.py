"""A model with one logit, trained with the binary cross-entropy, beside the same model with a logit for each class."""

import copy
import warnings
from typing import Any

import pytest
import torch
from guided import annotated_data, fit, guidance, sgd_module
from setting import UNTRAINED, data, loader, messages, module, monitor, trainer, vit
from torch import Tensor, nn

import lrptrain
from lrptrain.auditing import AuditSettings
from lrptrain.auditing.score import summarize
from lrptrain.batch.annotations import mask_to_tokens
from lrptrain.guidance import guidance_loss

SAMPLES = 24
# A share of answers steps by 1 / 64, 8 samples in 8 steps: of a sample that lies on an edge, the last bits decide.
ON_THE_EDGE = 2 / 64


class OneLogit(nn.Module):
    """A ViT with one logit; its output is `[batch, 1]` or `[batch]`."""

    def __init__(self, flat: bool = False):
        super().__init__()
        self.vit: Any = vit(num_classes=1).double()
        self.flat = flat
        with torch.no_grad():  # both classes are to be predicted, clearly
            self.vit.head.weight.mul_(20)
            self.vit.head.bias.copy_(-self.vit(data()["image"].double()).mean(0))

    def forward(self, image: Tensor) -> Tensor:
        logit: Tensor = self.vit(image)
        return logit[:, 0] if self.flat else logit


def two_logits() -> nn.Module:
    both = copy.deepcopy(OneLogit().vit)
    both.head = nn.Linear(32, 2).double()
    head = OneLogit().vit.head
    with torch.no_grad():
        both.head.weight.copy_(torch.cat([-head.weight, head.weight]) / 2)
        both.head.bias.copy_(torch.cat([-head.bias, head.bias]) / 2)
    return both


def columns(label: Tensor | None = None) -> dict[str, Tensor]:
    drawn = data(SAMPLES)
    drawn["image"] = drawn["image"].double()
    drawn["label"] = drawn["label"] % 2 if label is None else label
    return drawn


def validated(folder: Any, net: nn.Module, label: Tensor | None = None, **options: Any) -> Any:
    settings = {"max_samples": SAMPLES, "on_error": "raise", **options}
    watching = monitor(**settings, class_names=["benign", "malignant"], min_effect=0.001)
    trainer(folder, watching).validate(module(net=net), loader(columns(label)), verbose=False)
    return watching


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What the monitor sees of the model with a logit for each class."""
    return validated(tmp_path_factory.mktemp("two"), two_logits())


INDICES = data(SAMPLES)["label"] % 2


@pytest.mark.parametrize(("flat", "label"), [(False, INDICES[:, None]), (True, INDICES.float())], ids=["int", "float"])
def test_the_monitor_sees_what_it_sees_of_two_logits(label, flat, expected, tmp_path):
    """Predictions, probabilities, maps, scores, interventions, findings and the maps of both classes."""
    watching = validated(tmp_path, OneLogit(flat), label)
    assert {each.predicted for each in watching.scored} == {0, 1}
    for explained, two in zip(watching.scored, expected.scored, strict=True):
        assert (explained.sample.sample_id, explained.sample.label, explained.predicted) == (
            two.sample.sample_id,
            two.sample.label,
            two.predicted,
        )
        torch.testing.assert_close(torch.tensor(explained.probabilities), torch.tensor(two.probabilities))
        assert explained.values == pytest.approx(two.values, rel=1e-9, nan_ok=True)
        for target in ("label", "predicted"):
            torch.testing.assert_close(explained.maps[target], two.maps[target], rtol=1e-9, atol=1e-12)
    assert watching.findings
    facts = [[(each.kind, each.role, each.verdict, each.name) for each in run.findings] for run in (watching, expected)]
    assert facts[0] == facts[1]
    effects = [[each.effect for each in run.findings] for run in (watching, expected)]
    assert effects[0] == pytest.approx(effects[1], rel=1e-6)
    written = [sorted((run.folder / "class_maps").iterdir()) for run in (watching, expected)]
    tables = [table(paths[0]) for paths in written]
    assert tables[0]["class"] == tables[1]["class"]
    assert set(tables[0]["class"]) == {"benign", "malignant"}
    torch.testing.assert_close(torch.tensor(tables[0]["map_class"]), torch.tensor(tables[1]["map_class"]))


def table(path: Any) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = pq.read_table(path).to_pydict()
    return columns


class SeveralLabels(nn.Module):
    """The model of one logit, whose logit is one of three."""

    def __init__(self):
        super().__init__()
        self.vit: Any = OneLogit().vit
        head = self.vit.head
        self.vit.head = nn.Linear(32, 3).double()
        with torch.no_grad():
            self.vit.head.weight[1] = head.weight[0]
            self.vit.head.bias[1] = head.bias[0]

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.vit(image)
        return logits


def several(label: Tensor) -> Tensor:
    """Labels of which the second is the given one."""
    return torch.stack([torch.ones(len(label)), label.float(), 1 - label.float()], 1)


def test_one_of_several_labels_is_watched_as_if_the_model_had_no_other(expected, tmp_path):
    watching = validated(tmp_path, SeveralLabels(), several(INDICES), task=lrptrain.OneLabel(1))
    for explained, other in zip(watching.scored, expected.scored, strict=True):
        assert (explained.sample.label, explained.predicted) == (other.sample.label, other.predicted)
        torch.testing.assert_close(torch.tensor(explained.probabilities), torch.tensor(other.probabilities))
        for target in ("label", "predicted"):
            torch.testing.assert_close(explained.maps[target], other.maps[target], rtol=1e-9, atol=1e-12)
    facts = [[(each.kind, each.role, each.verdict, each.name) for each in run.findings] for run in (watching, expected)]
    assert facts[0] == facts[1]


def test_guidance_on_one_of_several_labels_moves_what_it_would_move_of_one(tmp_path):
    label = torch.tensor([0, 1, 1, 0, 0, 1])
    moved, value = step(SeveralLabels(), tmp_path, "label", "energy", several(label), task=lrptrain.OneLabel(1))
    gradients, expected = step(OneLogit(), tmp_path, "label", "energy", label)
    assert value == pytest.approx(expected, rel=1e-9)
    for name, x in gradients.items():
        part = moved[name][1:2] if name.startswith("vit.head.") else moved[name]
        torch.testing.assert_close(part, x, rtol=1e-7, atol=1e-12)
    assert not moved["vit.head.weight"][[0, 2]].any()


def test_a_line_says_how_one_logit_is_read(tmp_path):
    for task, times in ((None, 1), ("binary", 0)):
        with messages() as lines:
            pl_module = module(net=OneLogit())
            pl_module.training_step = lambda batch, batch_idx: pl_module(batch["image"]).square().mean()  # noqa: B023
            trainer(tmp_path, monitor(task=task), max_epochs=1).fit(pl_module, loader(columns()), loader(columns()))
        assert len([line for line in lines if "read as a logit: class 1 where z > 0" in line]) == times


def test_labels_that_look_like_signs_are_warned_of(tmp_path):
    with pytest.warns(UserWarning, match=r"a negative label means none: if -1 is a class.*give \(label \+ 1\) // 2"):
        fit_once(tmp_path / "signs", columns(2 * INDICES - 1))
    with warnings.catch_warnings(record=True) as caught:
        fit_once(tmp_path / "some unlabelled", columns(torch.where(torch.arange(SAMPLES) == 0, -1, INDICES)))
    assert not [each for each in caught if "a negative label means none" in str(each.message)]


def fit_once(folder, batches):
    runner = trainer(folder, monitor(max_samples=SAMPLES, on_error="raise"), max_epochs=1, num_sanity_val_steps=1)
    trained = module(net=OneLogit())
    trained.training_step = lambda batch, batch_idx: trained.net(batch["image"]).square().mean()
    runner.fit(trained, loader(batches), loader(batches))


def step(net: nn.Module, folder: Any, target: str, loss: str, label: Tensor, **options: Any) -> Any:
    """The guidance's part of a step of gradient descent: the task's loss has no gradient."""
    before = copy.deepcopy(net)
    drawn = annotated_data()
    drawn["label"] = label
    pl_module = sgd_module(net)
    pl_module.training_step = lambda batch, batch_idx: 0.0 * pl_module(batch["image"]).sum()
    runner = fit(folder, pl_module, drawn, guidance(loss, target=target, **options))
    moved = {name: x - dict(before.named_parameters())[name] for name, x in net.named_parameters()}
    return moved, float(runner.callback_metrics[f"guidance/{loss}"])


@pytest.mark.parametrize(
    ("loss", "kind", "target"),
    [
        ("energy", torch.long, "label"),
        ("energy", torch.float32, "predicted"),
        ("rrr", torch.long, "predicted"),
        ("consistency", torch.long, "label"),
    ],
)
def test_guidance_moves_the_weights_as_of_two_logits(loss, target, kind, tmp_path):
    label = torch.tensor([0, 1, 1, 0, 0, 1])
    gradients, value = step(OneLogit(), tmp_path, target, loss, label.to(kind))
    two, expected = step(two_logits(), tmp_path, target, loss, label)
    assert value == pytest.approx(expected, rel=1e-9)
    assert any(bool(x.any()) for x in gradients.values())
    for name, x in two.items():
        if name.startswith("head."):  # by the chain rule z has half of the difference of both rows
            x = (x[1:] - x[:1]) / 2
        torch.testing.assert_close(gradients[f"vit.{name}"], x, rtol=1e-7, atol=1e-12)


def test_guidance_on_the_predicted_class_explains_minus_z_where_z_is_negative(tmp_path):
    """The energy of the map of the class that is predicted, by the engine alone."""
    net = OneLogit()
    drawn = annotated_data()
    with torch.no_grad():
        sign = net(drawn["image"])[:, 0].sign()
    assert set(sign.tolist()) == {-1.0, 1.0}
    _, value = step(OneLogit(), tmp_path, "predicted", "energy", torch.zeros(6), method="input_x_gradient")
    scores = lrptrain.attribute(net, drawn["image"], method="input_x_gradient").scores * sign[:, None]
    expected = guidance_loss(scores, mask_to_tokens(drawn["mask"], (4, 4)))
    assert value == pytest.approx(float(expected), rel=1e-6)


def test_a_model_that_says_it_is_a_regression_is_refused_with_a_way_out_that_works(tmp_path):

    def regression() -> nn.Module:
        net: Any = OneLogit()
        net.config = type("Config", (), {"problem_type": "regression"})()
        return net

    message = r"config\.problem_type is 'regression': pass task=lrptrain\.Regression\(mean, std\)"
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, monitor(), max_epochs=1).fit(
            module(net=regression(), **UNTRAINED), loader(columns()), loader(columns())
        )
    label = torch.tensor([0, 1, 1, 0, 0, 1])
    with pytest.raises(ValueError, match=message):
        step(regression(), tmp_path, "label", "energy", label)
    step(regression(), tmp_path, "label", "energy", label, task=lrptrain.Regression(0.5, 0.5))


def test_what_a_model_notes_in_its_first_step_does_not_end_the_run():
    net: Any = OneLogit()
    net.config = type("Config", (), {"problem_type": None})()
    net.register_forward_hook(lambda *_: setattr(net.config, "problem_type", "regression"))
    guidance = lrptrain.Guidance("energy", weight=1.0, sparse=True, on_error="raise")
    annotated = {**annotated_data(), "label": torch.tensor([0, 1, 1, 0, 0, 1])}
    for batch in ({**annotated, "mask": torch.full_like(annotated["mask"], 255)}, annotated):
        with guidance.step(net, batch) as guided:
            guided.guided(net(batch["image"]).square().mean()).backward()
    assert guidance.values["guidance/samples"] > 0


def test_soft_labels_are_refused_before_the_first_step_with_a_way_out_that_works(tmp_path):
    soft = torch.tensor([0.1, 0.9, 0.9, 0.1, 0.1, 0.9])
    net = OneLogit()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=r"'label' holds the float 0\.1, .* task='binary'"):
        step(net, tmp_path, "label", "energy", soft)
    assert all(torch.equal(x, before[name]) for name, x in net.state_dict().items())
    gradients, value = step(OneLogit(), tmp_path, "label", "energy", soft, task="binary")
    hard, expected = step(OneLogit(), tmp_path, "label", "energy", (soft > 0.5).long())
    assert value == expected
    assert all(torch.equal(x, hard[name]) for name, x in gradients.items())


@pytest.mark.trained
def test_audits_are_those_of_two_logits():
    batch = columns((data(SAMPLES)["label"] % 2).float())
    methods = ["attnlrp", "raw_attention", "lrp"]
    settings = AuditSettings(tests=["perturbation", "localisation"])
    audits = [
        lrptrain.audit(net.eval(), [batch], methods, max_samples=8, settings=settings)
        for net in (OneLogit(), two_logits())
    ]
    assert audits[0].about["accuracy"] == audits[1].about["accuracy"]
    # Not as texts: a number that is rounded for them may lie on an edge.
    first_verdicts, others = ([(each.method, each.faithful) for each in audit.verdicts] for audit in audits)
    assert first_verdicts == others
    for unit, other in zip(audits[0].units, audits[1].units, strict=True):
        assert (unit.title, unit.problem) == (other.title, other.problem)
        for name in other.values:
            means = (summarize(of[name]).value for of in (unit.values, other.values))
            assert next(means) == pytest.approx(next(means), abs=ON_THE_EDGE, nan_ok=True), (unit.title, name)


def test_a_regression_is_explained_by_the_side_of_the_mean(tmp_path):
    """Above the mean of the labels maps explain the output, below it its negative."""
    assert monitor(task=lrptrain.Regression(3.0, 2.0)).core.recorder.class_names == ["below 3", "above 3"]
    net = OneLogit()
    values = 3.0 + 2.0 * torch.randn(SAMPLES, generator=torch.Generator().manual_seed(3))
    watching = validated(tmp_path, net, values, task=lrptrain.Regression(3.0, 2.0), class_maps=0)
    truth = columns()["image"]
    output = net(truth).detach()[:, 0]
    for each in watching.scored:
        row = int(each.sample.sample_id)
        assert each.sample.label == int(values[row] > 3.0)
        assert each.predicted == int(output[row] > 3.0)
        assert each.probabilities[1] == pytest.approx(float(((output[row] - 3.0) / 2.0).sigmoid()))
    row = int(watching.scored[0].sample.sample_id)
    sign = 2 * watching.scored[0].sample.label - 1
    expected = sign * lrptrain.attribute(net.eval(), truth[row : row + 1], method="attnlrp").scores[0] / 4
    torch.testing.assert_close(watching.scored[0].maps["label"], expected.detach(), rtol=1e-8, atol=1e-12)


def test_an_unlabelled_logit_is_explained_for_the_class_that_it_predicts(tmp_path):
    without = columns()
    del without["label"]
    watching = monitor(max_samples=SAMPLES, on_error="raise")
    trainer(tmp_path, watching).validate(module(net=OneLogit()), loader(without), verbose=False)
    assert {each.predicted for each in watching.scored} == {0, 1}
    image = without["image"]
    net = OneLogit().eval()
    scores = lrptrain.attribute(net, image, method="attnlrp").scores * net(image).sign() / 2
    for each in watching.scored:
        expected = scores[int(each.sample.sample_id)].detach()
        torch.testing.assert_close(each.maps["predicted"], expected, rtol=1e-8, atol=1e-12)
