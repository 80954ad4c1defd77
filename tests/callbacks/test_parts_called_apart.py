"""A step that calls encoder and head, or the halves of one model, apart: features are never read as logits."""

from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from guided import annotated_data
from setting import loader, monitor, trainer, vit
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain.callbacks import RelevanceGuidance


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


@pytest.mark.parametrize("kind", [Parts, Embeds, Calls, Halves, Prototypes])
@pytest.mark.parametrize("loss", ["swap", "energy"])
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


@pytest.mark.parametrize(
    ("kind", "model"), [(Parts, None), (Parts, "encoder"), (Embeds, None), (Calls, None), (Calls, "encoder")]
)
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
    guidance.voice.say = lambda text: said.append(text)  # type: ignore[method-assign]
    with guidance.step(net, batch) as step:
        step.guided(F.cross_entropy(net(batch["image"]) @ prototypes.T, batch["label"]))
    assert any("Its 32 outputs may be features" in each for each in said)


def test_in_a_loop_a_method_is_guided():
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = vit(num_classes=0), nn.Linear(32, 3)

        def logits(self, image: Tensor) -> Tensor:
            return self.head(self.encoder(image))

    net, batch = Loop(), annotated_data(6, dtype=torch.float32)
    guidance = lrptrain.Guidance("energy", weight=1.0, model="logits", on_error="raise")
    with guidance.step(net, batch) as step:
        step.guided(F.cross_entropy(net.logits(batch["image"]), batch["label"])).backward()
    assert guidance.values["guidance/samples"] == 6


def test_an_inspection_of_features_tests_nothing_and_says_why():
    net = vit(num_classes=0).eval()
    with torch.no_grad():
        net.get_parameter("norm.bias")[5:] += 10.0
    report = lrptrain.inspect(net, [annotated_data(12, dtype=torch.float32)])
    assert not report.findings
    assert any("Its 32 outputs may be features, not logits" in each for each in report.untested)
