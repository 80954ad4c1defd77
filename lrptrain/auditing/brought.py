"""A model as a user brings it: what it predicts, and how it is left as it was."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance import UnsupportedMethodError, UnsupportedModelError, UnsupportedOperationError
from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.relevance.passes.recording import Inputs

Fill = float | Sequence[float]
"""What removed pixels become: one number, or one per channel."""
UNSUPPORTED = (UnsupportedMethodError, UnsupportedModelError, UnsupportedOperationError, ImportError)
"""Errors of a method that cannot explain a model, as opposed to failures."""


@contextmanager
def evaluation_with_gradients(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the model in evaluation mode, where gradients can be computed; it is left as it was."""
    with preserved(model), torch.inference_mode(False), torch.enable_grad():
        model.eval()
        yield model


@contextmanager
def trainable(model: nn.Module) -> Iterator[None]:
    """Make all parameters trainable meanwhile: what a backward pass costs must not depend on frozen layers."""
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(parameter.is_floating_point())
        yield
    finally:
        for parameter, was_trainable in flags:
            parameter.requires_grad_(was_trainable)


def predict_logits(model: nn.Module, inputs: Inputs) -> Float[Tensor, "batch classes"]:
    """Return the model's logits for arguments of its forward."""
    if isinstance(inputs, Tensor):
        return read_logits(model(inputs), inputs.shape[0])
    samples = next(iter(inputs.values())).shape[0]
    return read_logits(model(**inputs), samples)


def image_prediction(model: nn.Module, inputs: Inputs) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return the logits as a function of the images alone, and the images; other inputs stay as they are."""
    if isinstance(inputs, Tensor):
        return lambda images: predict_logits(model, images), inputs
    name, images = next((name, value) for name, value in inputs.items() if value.ndim == 4)
    return lambda changed: predict_logits(model, {**inputs, name: changed}), images


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that a clock tells the time of what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize()
