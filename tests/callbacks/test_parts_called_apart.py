"""A step that calls encoder and head, or the halves of one model, apart: features are never read as logits."""

from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import transformers
from guided import annotated_data
from setting import loader, monitor, trainer, vit
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain.callbacks import RelevanceGuidance, RelevanceMonitorCallback


class Parts(pl.LightningModule):
    """It has no forward."""

    encoder: nn.Module
    head: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = vit(num_classes=0), nn.Linear(32, 3)

    def logits(self, image: Tensor) -> Tensor:
        return self.head(self.encoder(image))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.cross_entropy(self.logits(batch["image"]), batch["label"])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.logits(batch["image"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


class Embeds(Parts):
    """Its forward gives features, which the steps go on with."""

    def forward(self, image: Tensor) -> Tensor:
        return self.encoder(image)


class Calls(Embeds):
    def logits(self, image: Tensor) -> Tensor:
        return self.head(self(image))


class Halves(Parts):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = vit(), nn.Identity()

    def logits(self, image: Tensor) -> Tensor:
        return self.encoder.forward_head(self.encoder.forward_features(image))  # type: ignore[operator]


class Prototypes(Embeds):
    """No module takes its features."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Identity()
        self.prototypes = nn.Parameter(torch.randn(3, 32))

    def logits(self, image: Tensor) -> Tensor:
        return F.normalize(self.encoder(image)) @ F.normalize(self.prototypes).T


def fit(folder: Any, pl_module: Any, *callbacks: Any, **options: Any) -> Any:
    columns = annotated_data(12, dtype=torch.float32)
    runner = trainer(folder, *callbacks, **{"max_epochs": 1, **options})
    runner.fit(pl_module, loader(columns, 6), loader(columns, 6))
    return runner


@pytest.mark.parametrize(
    ("kind", "loss"), [(Parts, "swap"), (Embeds, "energy"), (Calls, "swap"), (Halves, "energy"), (Prototypes, "energy")]
)
def test_the_method_that_gives_the_logits_is_watched_and_guided(kind, loss, tmp_path):
    pl_module, watch = kind(), monitor(model="logits", max_samples=12)
    runner = fit(tmp_path, pl_module, watch, RelevanceGuidance(loss, model="logits", on_error="raise"))
    assert watch.failures == 0
    assert runner.callback_metrics["guidance/samples"] == 6
    assert "logits" not in vars(pl_module)
    image = annotated_data(12, dtype=torch.float32)["image"]
    with torch.no_grad():
        expected = pl_module.eval().logits(image).softmax(1)
    found = {each.sample.sample_id: each.probabilities for each in watch.scored}
    assert torch.allclose(torch.stack([torch.from_numpy(found[i]).float() for i in range(12)]), expected, atol=1e-4)


@pytest.mark.parametrize(("kind", "model"), [(Parts, None), (Parts, "encoder"), (Calls, None)])
@pytest.mark.parametrize("callback", [monitor, lambda **options: RelevanceGuidance("energy", **options)])
def test_features_are_refused_with_the_method(kind, model, callback, tmp_path):
    pl_module = kind()
    with pytest.raises(ValueError, match="'logits'"):
        fit(tmp_path, pl_module, callback(model=model))
    assert pl_module.global_step == 0


def test_of_features_that_no_module_takes_no_verdict_is_given(tmp_path):
    pl_module, watch = Prototypes(), monitor(max_samples=12)
    with torch.no_grad():
        pl_module.encoder.get_parameter("norm.bias")[5:] += 10.0  # features beyond the classes are the largest
    fit(tmp_path, pl_module, watch)
    assert watch.findings == []
    assert "may be features, not logits" in watch.core.judging.skill.text


def test_guidance_says_what_may_be_features(tmp_path):
    net, batch = vit(num_classes=0), annotated_data(6, dtype=torch.float32)
    with torch.no_grad():
        net.get_parameter("norm.bias")[5:] += 10.0
    prototypes = nn.Parameter(torch.randn(3, 32))
    guidance = lrptrain.Guidance("consistency", weight=1.0, on_error="raise")
    said: list[str] = []
    guidance.state.messages.inform = lambda text: said.append(text)  # type: ignore[method-assign]
    with guidance.step(net, batch) as step:
        step.guided(F.cross_entropy(net(batch["image"]) @ prototypes.T, batch["label"]))
    assert any("Its 32 outputs may be features" in each for each in said)


def test_an_inspection_of_features_tests_nothing_and_says_why():
    net = vit(num_classes=0).eval()
    with torch.no_grad():
        net.get_parameter("norm.bias")[5:] += 10.0
    report = lrptrain.inspect(net, [annotated_data(12, dtype=torch.float32)])
    assert not report.findings
    assert any("Its 32 outputs may be features, not logits" in each for each in report.untested)


class Loop(nn.Module):
    """Its forward gives features, and its method the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = vit(num_classes=0), nn.Linear(32, 3)

    def forward(self, image: Tensor) -> Tensor:
        return self.encoder(image)

    def logits(self, image: Tensor) -> Tensor:
        return self.head(self(image))


def test_a_method_is_inspected_and_watched_in_a_loop(tmp_path):
    net, batch = Loop().eval(), annotated_data(12, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"step= gives what the model returns to 'head'.*model.logits in place of"):
        lrptrain.inspect(net, [batch], step=lambda _, batch: net.head(net(batch["image"])))
    with torch.no_grad():
        expected = (net.logits(batch["image"]).argmax(1) == batch["label"]).float().mean()
    assert lrptrain.inspect(net.logits, [batch]).accuracy == pytest.approx(float(expected))
    watch = lrptrain.Monitor(net.logits, [batch], tmp_path, step=lambda _, batch: net.logits(batch["image"]))
    assert watch.evaluate(0) is not None
    assert watch.scalars["relevance/accuracy"] == pytest.approx(float(expected))


def test_a_method_is_watched_and_guided_in_transformers(tmp_path):
    class Apart(transformers.Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *_: Any, **__: Any) -> Any:
            logits = model.logits(inputs["image"])
            loss = F.cross_entropy(logits, inputs["labels"])
            return (loss, {"logits": logits}) if return_outputs else loss

        def prediction_step(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            with torch.no_grad():
                loss, output = self.compute_loss(model, inputs, True)
            return loss, output["logits"], inputs["labels"]

    columns = annotated_data(12, dtype=torch.float32)
    rows = [
        {"image": columns["image"][i], "labels": columns["label"][i], "mask": columns["mask"][i]} for i in range(12)
    ]
    options = transformers.TrainingArguments(
        str(tmp_path), num_train_epochs=1, eval_strategy="epoch", report_to=[], use_cpu=True, save_strategy="no",
        per_device_train_batch_size=6, disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip

    def trained(**named: Any) -> Any:
        watch = RelevanceMonitorCallback(max_samples=12, budget=None, run=lrptrain.Run(on_error="raise"), **named)
        runner = Apart(Loop(), options, train_dataset=rows, eval_dataset=rows, callbacks=[watch])
        lrptrain.guide(runner, "energy", on_error="raise", **named)
        runner.train()
        return watch

    with pytest.raises(ValueError, match="model='logits'"):
        trained()
    assert trained(model="logits").scalars["relevance/samples"] == 12


def test_of_features_no_distance_is_measured():
    net, batch = Loop(), annotated_data(6, dtype=torch.float32)
    guidance = lrptrain.Guidance("swap", on_error="raise", compare_every_n_batches=1)
    with guidance.step(net, batch) as step:
        step.guided(F.cross_entropy(net.head(net(batch["image"])), batch["label"]))
    assert guidance.values["guidance/swapped"] == 6
    assert not guidance.values.get("guidance/swap_distance", 0.0) > 0
