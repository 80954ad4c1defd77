"""Small models under audit, quick enough for a test."""

from dataclasses import replace
from typing import Any

import torch
from model_zoo import KINDS
from torch import nn

from lrptrain.auditing import AuditContext, AuditSettings, registered_tests
from lrptrain.auditing.base import AuditTest
from lrptrain.auditing.context import predict_batches

QUICK = AuditSettings(random_maps=1, stages=1)
DECIDING = ("perturbation", "leave_one_out", "randomisation")
METHODS = ("raw_attention", "input_x_gradient", "random")


def batches(name: str = "vit", sizes: tuple[int, ...] = (6, 4), classes: int = 5) -> list[dict[str, torch.Tensor]]:
    """Random samples of a kind of model, with labels in turn."""
    inputs: Any = KINDS[name].inputs(sum(sizes))
    samples = dict(inputs) if isinstance(inputs, dict) else {"image": inputs}
    samples["label"] = torch.arange(sum(sizes)) % classes
    columns = {key: value.split(sizes) for key, value in samples.items()}
    return [{key: parts[i] for key, parts in columns.items()} for i in range(len(sizes))]


def model(name: str = "vit") -> nn.Module:
    """A kind of model with random weights."""
    return KINDS[name].build(True)


def context(name: str = "vit", methods: tuple[str, ...] = METHODS) -> AuditContext:
    """An audit of a kind of model on ten samples."""
    net = model(name)
    return AuditContext(net, predict_batches(net, batches(name)), methods, settings=QUICK)


def only(*tests: str) -> AuditSettings:
    """The quick settings, of these tests alone."""
    return replace(QUICK, tests=tests)


def registered(name: str) -> AuditTest:
    """The registered test of a name."""
    return next(test for test in registered_tests() if test.name == name)


class Constant(nn.Module):
    """A model that predicts the same class whatever it reads."""

    def __init__(self, kind: str = "vit"):
        super().__init__()
        self.net = model(kind)

    def forward(self, image):
        return self.net(image) + 1000 * torch.eye(5)[2]
