"""From a model's logits to probabilities of classes, where one logit stands for two classes."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def two_class_logits(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch _classes"]:
    """Return the logits as they are; a single one as the second of two classes, of which the first has the logit 0."""
    return logits if logits.shape[1] > 1 else F.pad(logits, (1, 0))


def are_steps(logits: Float[Tensor, "batch classes"]) -> bool:
    """Return whether logits differ by the same numbers in all samples, though they vary: those of CORAL.

    Read as classes, all samples would have one answer. Up to rounding, of which there is more in sums than in a number.
    """
    logits = logits.detach()
    if min(logits.shape) < 2:
        return False
    apart = (logits - logits[:, :1]).double()
    rounding = 32 * torch.finfo(logits.dtype).eps * float(logits.abs().max())
    varies, differs = (float((x - x[:1]).abs().max()) for x in (logits[:, :1].double(), apart))
    return differs <= rounding < varies


def class_probabilities(
    logits: Float[Tensor, "batch classes"], dtype: torch.dtype | None = torch.float64
) -> Float[Tensor, "batch _classes"]:
    """Return the softmax over classes, of a single logit over two; `dtype` None: the logits' own, at least float32."""
    precision = torch.promote_types(logits.dtype, torch.float32) if dtype is None else dtype
    return two_class_logits(logits.to(precision)).softmax(1)


def are_beyond(answers: Int[Tensor, " batch"], labels: Int[Tensor, " batch"]) -> bool:
    """Return whether most answers are classes above all labels, as the largest of an embedding's features are."""
    return bool((answers > labels.max()).double().mean() > 0.5 and labels.max() >= 0) if len(labels) else False


def features(outputs: int, most: int) -> str:
    """Return what is said of outputs most of which no label names."""
    return (
        f"most of its answers are classes beyond {most}, and no label is. Its {outputs} outputs may be features, not "
        "logits: explain what gives the logits (model=)"
    )
