"""Right for the right reasons (Ross et al. 2017): no input gradient outside of the evidence."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lrptrain.batch.task import CLASSES, Task
from lrptrain.guidance.evidence import has_annotation
from lrptrain.guidance.losses.base import GuidedBatch, LossSum, Needs, register_loss
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.propagation.propagator import at_least_float32


@register_loss("rrr", Needs.RECORDING)
def rrr(batch: GuidedBatch) -> LossSum:
    """Sum `right_reasons` over the annotated samples."""
    annotation = batch.recorded_annotation
    return LossSum.over(right_reasons(batch.recording, annotation, batch.task), has_annotation(annotation))


def right_reasons(
    recording: Recording, annotation: Shaped[Tensor, " batch *area"], task: Task = CLASSES
) -> Float[Tensor, " batch"]:
    """Return sum ((1 - M) d/dx sum_k log p_k)^2 (Ross et al. 2017, eq. 1, first term) of every sample.

    Args:
        recording: A forward pass on images `[batch, channels, height, width]`, on volumes or series, or on texts; x is
            then the word embeddings.
        annotation: 1 evidence, 0 not, 255 ignored: of the images' pixels, or of the texts' tokens.
        task: What the model's output means; of several labels, k goes over the answers to each.

    Raises:
        ValueError: If annotation and input differ in size.
    """
    # Of the sum over the batch: a sample's logits depend on its own input alone, so that this is every sample's
    # gradient.
    gradient = recording.input_gradient(
        lambda logits: at_least_float32(task.by_answer(logits)).log_softmax(-1).sum(), create_graph=True
    )
    features = -1 if gradient.ndim == 3 and gradient.shape[:-1] == annotation.shape else 1
    squares = at_least_float32(gradient).square().sum(features)  # [batch, *area]
    if squares.shape != annotation.shape:
        raise ValueError(f"annotation {tuple(annotation.shape)} must have the size of the input {tuple(squares.shape)}")
    return torch.where(annotation.to(squares.device) == 0, squares, 0).flatten(1).sum(1)
