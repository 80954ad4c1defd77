"""Run a model for its logits, whatever form its inputs have."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance import UnsupportedMethodError, UnsupportedModelError, UnsupportedOperationError
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.relevance.passes.recording import Inputs

Fill = float | Sequence[float]
"""What removed pixels become: one number, or one per channel."""
UNSUPPORTED = (UnsupportedMethodError, UnsupportedModelError, UnsupportedOperationError, ImportError)
"""Errors of a method that cannot explain a model, as opposed to failures."""


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
