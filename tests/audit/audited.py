"""Small models under audit, quick enough for a test."""

from typing import Any

import torch
from model_zoo import KINDS
from torch import nn

from lrptrain.audit import Effort

QUICK = Effort(
    random_maps=1,
    stages=1,
    shuffles=4,
    search_copies=2,
    search_steps=4,
    frozen_steps=4,
    adversary_steps=2,
    strengths=(1.0,),
    seeds=2,
)
METHODS = ("raw_attention", "input_x_gradient", "random")


def batches(name: str = "vit", sizes: tuple[int, ...] = (6, 4), classes: int = 5) -> list[dict[str, torch.Tensor]]:
    """Random samples of a kind of model, with labels in turn."""
    inputs: Any = KINDS[name].inputs(sum(sizes))
    whole = dict(inputs) if isinstance(inputs, dict) else {"image": inputs}
    whole["label"] = torch.arange(sum(sizes)) % classes
    columns = {key: value.split(sizes) for key, value in whole.items()}
    return [{key: parts[i] for key, parts in columns.items()} for i in range(len(sizes))]


def model(name: str = "vit") -> nn.Module:
    """A kind of model with random weights."""
    return KINDS[name].build(True)


class Constant(nn.Module):
    """A model that answers the same class whatever it reads."""

    def __init__(self, kind: str = "vit"):
        super().__init__()
        self.net = model(kind)

    def forward(self, image):
        return self.net(image) + 1000 * torch.eye(5)[2]
