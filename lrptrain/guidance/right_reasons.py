"""Right for the right reasons (Ross et al. 2017): no input gradient outside of the evidence."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lrptrain.guidance.consistency import two_classes
from lrptrain.metrics.base import at_least_float32
from lrptrain.relevance.recording import Recording


def right_reasons(recorded: Recording, annotation: Shaped[Tensor, "batch *area"]) -> Float[Tensor, " batch"]:
    """sum ((1 - M) d/dx sum_k log p_k)^2 (Ross et al. 2017, eq. 1, first term), of every sample.

    Args:
        recorded: A forward pass on images `[batch, channels, height, width]`, or on texts, whose word embeddings are x.
        annotation: 1 evidence, 0 not, 255 ignored: of the images' pixels, or of the texts' tokens.

    Raises:
        ValueError: If annotation and input differ in size.
    """
    gradient = recorded.input_gradient(
        lambda logits: at_least_float32(two_classes(logits)).log_softmax(-1).sum(), create_graph=True
    )
    squares = at_least_float32(gradient).square().sum(1 if gradient.ndim == 4 else -1)
    if squares.shape != annotation.shape:
        raise ValueError(f"annotation {tuple(annotation.shape)} must have the size of the input {tuple(squares.shape)}")
    return torch.where(annotation.to(squares.device) == 0, squares, 0).flatten(1).sum(1)
