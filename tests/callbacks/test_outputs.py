"""Models that return more than logits: what a refusal says to write is taken, in every trainer."""

import math
import re
from dataclasses import dataclass
from typing import Any

import own_trainers
import pytest
import torch
from hugging_face import quiet_arguments, small_sizes
from own_trainers import TRAINERS, N, answers
from torch import Tensor, nn
from transformers import BertConfig, BertForQuestionAnswering, Trainer

import lrptrain
from lrptrain import UnsupportedModelError
from lrptrain.callbacks import RelevanceMonitorCallback


class Outputs(nn.Module):
    """A classifier that returns its logits in some form, and its loss first where it is given labels."""

    def __init__(self, form):
        super().__init__()
        from setting import vit

        self.net, self.form = vit(), form

    def forward(self, image, labels=None):
        states = self.net.forward_features(image)
        output = self.form(self.net.forward_head(states), states)
        if labels is None:
            return output
        logits = self.net.forward_head(states)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


FORMS: dict[str, Any] = {
    "logits and states": (lambda logits, states: (logits, states), 0),
    "two heads": (lambda logits, states: {"malignancy": logits, "age": logits.flip(1)}, "malignancy"),
    "states and logits": (lambda logits, states: [states, logits], 1),
}


@pytest.fixture(autouse=True)
def own_loss(monkeypatch):
    def logits(output):
        tensors = list(output.values()) if isinstance(output, dict) else list(output)
        return next(x for x in tensors if x.ndim == 2)

    monkeypatch.setattr(own_trainers.Module, "logits", staticmethod(logits))


def images():
    torch.manual_seed(0)
    return {"image": torch.randn(N, 3, 16, 16)}


@pytest.mark.parametrize(
    ("title", "train"),
    [(title, train) for i, title in enumerate(FORMS) for j, train in enumerate(TRAINERS) if (i + j) % 3 == 0],
)
def test_the_task_that_a_refusal_names_is_taken(title, train, tmp_path):
    form, head = FORMS[title]
    model, columns = Outputs(form), images()
    with pytest.raises(UnsupportedModelError, match=r"must return logits .* take task=lrptrain.Head\(") as raised:
        train(tmp_path / "refused", model, columns, {})
    advice = re.search(r"task=(lrptrain\.Head\(.*?\))", str(raised.value))
    assert advice is not None
    task = eval(advice[1])
    assert task == lrptrain.Head(head)
    watching = train(tmp_path / "taken", model.train(), columns, {"task": task})
    own = model.net.eval()(columns["image"]).argmax(1)
    assert answers(watching) == own.tolist()


def test_a_model_without_a_row_of_classes_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(own_trainers.Module, "logits", staticmethod(lambda output: output[:, 0]))
    model = Outputs(lambda logits, states: torch.stack([logits] * 4, 1))
    with pytest.raises(UnsupportedModelError, match="explain one class per sample"):
        TRAINERS[0](tmp_path, model, images(), {})


def test_heads_have_tasks_of_their_own():
    task = lrptrain.Head("grade", lrptrain.Regression(2.0, 1.0))
    assert task.class_names == ["below 2", "above 2"]
    assert task.description == "lrptrain.Head(output='grade', task=lrptrain.Regression(mean=2.0, std=1.0))"
    assert task.classes(torch.tensor([1.0, 3.0])).tolist() == [0, 1]


@dataclass
class Both:
    logits_a: Tensor
    logits_b: Tensor


class TwoHeads(nn.Module):
    """Two answers; of a Hugging Face model, the loss of both."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.a, self.b = Outputs(None), Outputs(None)

    def forward(self, image, labels_a=None, labels_b=None):
        a, b = self.a.net(image), self.b.net(image)[:, :2]
        if self.form == "dict":
            losses = [nn.functional.cross_entropy(x, y) for x, y in ((a, labels_a), (b, labels_b)) if y is not None]
            return {"loss": sum(losses), "logits_a": a, "logits_b": b}
        return Both(a, b) if self.form == "dataclass" else (a, b)


HEADS: dict[str, tuple[Any, ...]] = {
    "dict": ("logits_a", "logits_b"), "dataclass": ("logits_a", "logits_b"), "tuple": (0, 1),
}  # fmt: skip


@pytest.mark.parametrize("form", HEADS)
def test_each_of_two_heads_is_inspected_with_its_own_labels(form):
    columns = {**images(), "labels_a": torch.arange(N) % 3, "labels_b": torch.arange(N) // 3 % 2}
    model, loader = TwoHeads(form), [columns]
    with (
        pytest.raises(UnsupportedModelError, match=r"task=lrptrain.Head\(.*\) or lrptrain.Head\("),
        pytest.warns(UserWarning, match="'labels_a' .* for 'label'.* batch_adapter=.* renames it"),
    ):
        lrptrain.inspect(model, loader)
    for head, entry, part in zip(HEADS[form], ("labels_a", "labels_b"), ("a", "b"), strict=True):
        report = lrptrain.inspect(model, loader, task=lrptrain.Head(head, label=entry))
        own = getattr(model, part).net.eval()(columns["image"])[:, : 3 if part == "a" else 2].argmax(1)
        assert report.accuracy == pytest.approx(float((own == columns[entry]).float().mean()))
        assert not [each for each in report.judged if each.cue.kind == "input"], "labels are no input"
    with pytest.warns(UserWarning, match="label= of lrptrain.Head names it"):
        assert math.isnan(lrptrain.inspect(model, loader, task=lrptrain.Head(HEADS[form][0])).accuracy)
    with pytest.raises(ValueError, match=r"reads the labels 'labels_c', and the batch has \['image', 'labels_a'"):
        lrptrain.inspect(model, loader, task=lrptrain.Head(HEADS[form][0], label="labels_c"))
    with pytest.raises(UnsupportedModelError, match=r"Head\('other'\) names no logits .*; it may be one of \["):
        lrptrain.inspect(model, loader, task=lrptrain.Head("other", label="labels_a"))


def test_two_monitors_of_a_transformers_trainer_watch_a_head_each(tmp_path):
    columns = {**images(), "labels_a": torch.arange(N) % 3, "labels_b": torch.arange(N) // 3 % 2}
    model = TwoHeads("dict")
    watching = [
        RelevanceMonitorCallback(
            max_samples=N,
            run=lrptrain.Run(on_error="raise", name=each),
            task=lrptrain.Head(f"logits_{each}", label=f"labels_{each}"),
        )
        for each in "ab"
    ]
    arguments = quiet_arguments(tmp_path, max_steps=1, label_names=["labels_a", "labels_b"], eval_strategy="epoch")
    rows = [{name: x[i] for name, x in columns.items()} for i in range(N)]
    Trainer(model, arguments, train_dataset=rows, eval_dataset=rows, callbacks=[*watching]).train()
    for each, own in zip(watching, (model.a, model.b), strict=True):
        name = each.core.config.run.name
        answers = own.net.eval()(columns["image"])[:, : 3 if name == "a" else 2].argmax(1)
        right = float((answers == columns[f"labels_{name}"]).float().mean())
        assert each.scalars[f"relevance/{name}/accuracy"] == pytest.approx(right)
        assert not any("/input/" in key for key in each.scalars)


def test_a_head_is_guided_by_its_own_labels():
    model = TwoHeads("dict")
    batch = {"image": torch.rand(6, 3, 16, 16), "mask": torch.zeros(6, 16, 16, dtype=torch.uint8)}
    batch |= {"labels_a": torch.arange(6) % 3, "labels_b": torch.arange(6) % 2}
    batch["mask"][:, :8] = 1
    values = {}
    for entry in ("labels_a", "labels_b"):
        guidance = lrptrain.Guidance("energy", task=lrptrain.Head("logits_a", label=entry))
        with guidance.step(model, batch) as step:
            step.guided(model(batch["image"], **{entry: batch[entry]})["loss"])
        assert guidance.values["guidance/samples"] == 6
        values[entry] = guidance.values["guidance/energy"]
    assert values["labels_a"] != values["labels_b"]


class OfTokens(nn.Module):
    """Two classes of each of six tokens: the third one's by the word in the fifth place."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(60, 1)
        self.scale = nn.Parameter(torch.tensor(1.0))
        with torch.no_grad():
            self.embeddings.weight.zero_()
            self.embeddings.weight[55], self.embeddings.weight[56] = 1.0, -1.0

    def forward(self, input_ids, attention_mask=None, labels=None):
        read = self.scale * self.embeddings(input_ids)[:, 4]
        logits = torch.zeros(*input_ids.shape, 2)
        third = (torch.arange(input_ids.shape[1]) == 3)[None, :, None]
        logits = torch.where(third, torch.cat([-5 * read, 5 * read], 1)[:, None], logits)
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


def tagged() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids, labels = torch.randint(5, 50, (N, 6), generator=generator), torch.zeros(N, 6, dtype=torch.long)
    labels[:, 3] = torch.arange(N) % 2
    ids[:, 4] = torch.where(labels[:, 3] == 1, 55, 56)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


THIRD = lrptrain.Head(lambda output: output["logits"][:, 3], label=lambda labels: labels[:, 3])


def logits_of_third(output):
    return output["logits"][:, 3]


@pytest.mark.parametrize(
    ("output", "label", "message"),
    [
        (logits_of_third, lambda labels: labels[:, 99], r"label= function .* fails on labels \[24, 6\]: IndexError"),
        (
            logits_of_third,
            lambda labels: labels[:5, 3],
            r"label= function .* makes \[5\] of labels \[24, 6\].*, \[24\]",
        ),
        (
            lambda output: output.logits[:, 3],
            lambda labels: labels[:, 3],
            "Head.* fails .AttributeError: .*returned dict",
        ),
        (lambda output: None, lambda labels: labels[:, 3], "it returned NoneType, and the model dict"),
    ],
)
def test_a_function_of_a_head_that_fails_is_named(output, label, message):
    with pytest.raises(ValueError, match=message):
        lrptrain.inspect(OfTokens(), [tagged()], task=lrptrain.Head(output, label=label))


@pytest.mark.parametrize("way", ["transformers", "loop"])
def test_the_class_of_a_token_is_monitored(way, tmp_path):
    columns = tagged()
    options: dict[str, Any] = {"max_samples": N, "task": THIRD, "run": lrptrain.Run(on_error="raise")}
    if way == "loop":
        watching: Any = lrptrain.Monitor(OfTokens(), [columns], tmp_path, **options)
        watching.evaluate(0)
    else:
        rows: Any = [{name: x[i] for name, x in columns.items()} for i in range(N)]
        watching = RelevanceMonitorCallback(budget=None, **options)
        arguments = quiet_arguments(tmp_path, num_train_epochs=1, learning_rate=0.0, eval_strategy="epoch")
        Trainer(OfTokens(), arguments, train_dataset=rows, eval_dataset=rows, callbacks=[watching]).train()
    assert [each.name for each in watching.findings if each.relies] == ["the words '55', '56'"]
    assert watching.scalars["relevance/accuracy"] == 1
    assert "0x" not in THIRD.description


def test_the_class_of_a_token_is_guided():
    columns = {**tagged(), "rationale": torch.zeros(N, 6, dtype=torch.long)}
    columns["rationale"][:, 1] = 1
    guidance = lrptrain.Guidance("energy", 1.0, task=THIRD, method="input_x_gradient", on_error="raise")
    model = OfTokens()
    given = {name: x for name, x in columns.items() if name != "rationale"}
    with guidance.step(model, columns) as step:
        step.guided(model(**given)["loss"])
    assert guidance.values["guidance/energy"] == 1, "all of the relevance lies on the fifth word"


def test_the_positions_of_a_span_are_no_inputs():
    columns = {name: x for name, x in tagged().items() if name != "labels"}
    columns |= {"start_positions": torch.arange(N) % 6, "end_positions": torch.arange(N) % 6}
    task = lrptrain.Head("start_logits", label="start_positions")
    report = lrptrain.inspect(
        BertForQuestionAnswering(BertConfig(vocab_size=60, **small_sizes(16))), [columns], task=task
    )
    assert not [each for each in report.judged if each.cue.kind == "input"]


class Steps(nn.Module):
    """Four steps between five grades, as CORAL has them: one number of the image, and a bias for each."""

    def __init__(self) -> None:
        super().__init__()
        self.of_image, self.biases = nn.Linear(64, 1), nn.Parameter(torch.tensor([2.0, 1.0, -1.0, -2.0]))

    def forward(self, image: Tensor) -> Tensor:
        return self.of_image(image.flatten(1)) + self.biases


def test_steps_between_grades_are_refused_before_the_first_step_though_no_label_is_the_highest_grade(tmp_path):
    torch.manual_seed(0)
    batch = {"image": torch.randn(N, 1, 8, 8), "label": torch.arange(N) % 4}
    with pytest.raises(ValueError, match=r"steps between grades, as of CORAL.* task=lrptrain.Ordinal\(\)"):
        lrptrain.Monitor(Steps(), [batch], tmp_path)
    net = Steps()
    guidance = lrptrain.Guidance("consistency", swap="colour")
    with pytest.raises(ValueError, match="steps between grades"), guidance.step(net, batch) as step:
        step.guided(net(batch["image"]).square().mean()).backward()
    assert lrptrain.inspect(Steps(), [batch], task=lrptrain.Ordinal()).samples == N
    assert lrptrain.inspect(Steps(), [batch], task="classes").samples == N
