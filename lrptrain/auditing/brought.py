"""A model as a user brings it: which of its modules gives logits, where it is, and how it is left as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from lrptrain.relevance.model.preserve import preserved, unwrap
from lrptrain.trainers.discover import find_model

LIGHTNING = ("pytorch_lightning", "lightning")


def logits_model(model: nn.Module) -> nn.Module:
    """Return the module whose forward gives logits: the model, or the only child of a LightningModule without forward.

    Raises:
        ValueError: If a LightningModule has no forward of its own, and several children or none.
    """
    model = unwrap(model)
    # Lightning's own forward does nothing; torch's modules, such as Sequential, have one that does.
    if (type(model).forward.__module__ or "").partition(".")[0] not in LIGHTNING:
        return model
    try:
        return find_model(model, None)
    except ValueError as error:
        reason = str(error).partition(": say which")[0]
        raise ValueError(f"{reason}: pass the model itself, such as module.{_first_child(model)}") from error


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the first parameter; the CPU without any."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


@contextmanager
def evaluation_with_gradients(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the model in evaluation mode, where gradients can be computed; it is left as it was."""
    with preserved(model), torch.inference_mode(False), torch.enable_grad():
        model.eval()
        yield model


@contextmanager
def trainable_in_evaluation(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the model as `evaluation_with_gradients`, with all parameters trainable meanwhile.

    What a backward pass costs must not depend on which layers were frozen in training.
    """
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    with evaluation_with_gradients(model):
        try:
            model.requires_grad_(True)
            yield model
        finally:
            for parameter, trainable in flags:
                parameter.requires_grad_(trainable)


def _first_child(model: nn.Module) -> str:
    return next((name for name, _ in model.named_children()), "net")
