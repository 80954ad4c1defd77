"""What is measured: a training pass, or one map by a method of this project or of another library."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import lrptrain
from experiments.speed.cells import Inputs, training_pass
from experiments.speed.peers import PEERS, lxt_bert, run_peer
from lrptrain.relevance.registry import get_method

TRAINING = "one forward + backward"


def work_of(name: str, model: nn.Module, inputs: Inputs, max_seconds: float = float("inf")) -> Callable[[], object]:
    """One map, by a method of this project or by a peer; or the training pass.

    Args:
        name: Its name in the tables.
        model: The model.
        inputs: The batch.
        max_seconds: What a method that says beforehand how long it takes may take.
    """
    if name in PEERS:
        if name.startswith("LXT") and type(model).__name__ == "BertForSequenceClassification":
            lxt_bert(model)  # its weights are no memory of a map
        return partial(run_peer, name, model, inputs)
    if name == TRAINING:
        return partial(training_pass, model, inputs)
    options: dict[str, Any] = {"max_seconds": max_seconds} if "max_seconds" in get_method(name, {}).options else {}
    return lambda: lrptrain.attribute(model, inputs, method=name, **options)


def placed(inputs: Inputs, device: str | torch.device) -> Inputs:
    """On the device."""
    return {k: v.to(device) for k, v in inputs.items()} if isinstance(inputs, dict) else inputs.to(device)
