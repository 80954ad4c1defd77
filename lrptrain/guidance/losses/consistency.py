"""Counterfactual consistency: what lies outside the evidence is swapped, and the prediction should stay.

Unlike a loss on a map, it cannot be met by a map that merely looks right.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.batch.logits import two_class_logits
from lrptrain.guidance.losses.base import GuidedBatch, LossSum, Needs, register_loss
from lrptrain.relevance.propagation.propagator import at_least_float32


@register_loss("consistency", Needs.SECOND_PASS)
def swap_consistency(batch: GuidedBatch) -> LossSum:
    """Sum the divergence of the predictions before and after a swap over the swapped samples that are guided."""
    swapped = batch.swapped()
    guided = batch.guided.to(swapped.explained.device)
    # Both sides have a graph: the prediction on the sample itself is drawn towards the one on its swap, too.
    again = batch.forward.again(swapped.explained[guided], guided, others=swapped.arguments_of(guided))
    before, after = (batch.task.by_answer(at_least_float32(each)) for each in (batch.forward.logits()[guided], again))
    return LossSum.over(divergences(before, after), swapped.which.to(before.device)[guided])


def divergences(
    logits: Float[Tensor, "batch classes"], swapped: Float[Tensor, "batch classes"]
) -> Float[Tensor, " batch"]:
    """Return KL(p(x) || p(swapped x)) of every sample, in nats.

    A single logit is that of the second of two classes; the first has the logit 0.
    """
    log_p = two_class_logits(logits).log_softmax(-1)
    log_q = two_class_logits(swapped).log_softmax(-1)
    return F.kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1)


def consistency(
    logits: Float[Tensor, "batch classes"], swapped: Float[Tensor, "batch classes"], annotated: Bool[Tensor, " batch"]
) -> Float[Tensor, ""]:
    """Return the mean of KL(p(x) || p(swapped x)) over the annotated samples; 0 if there are none."""
    return torch.where(annotated, divergences(logits, swapped), 0).sum() / annotated.sum().clamp(min=1)
