"""What the losses on a relevance map share: how they are registered, and their arithmetic.

Each is a function of scores and annotation that returns one number per sample. The scale of a map says nothing, so
every loss takes it relative to its own largest entry or sum: A+ = relu(A) / max A+ over the usable tokens. What is
ignored has no part in any of them. A map without positive entries stays all 0, and then has no gradient; neither has a
sample that cannot be judged: without annotation, or with entries that are not finite.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.guidance.losses.base import GuidedBatch, LossSum, Needs, register_loss
from lrptrain.metrics.base import usable_scores

Scores = Float[Tensor, "batch tokens"]
PerSample = Float[Tensor, " batch"]
MapLoss = Callable[[Scores, TokenAnnotation], PerSample]

MAP_LOSSES: dict[str, MapLoss] = {}
"""The losses on maps by name, as functions of scores and annotation."""
ROUNDING = 1e-6
"""Less of a share of relevance, or of the norm of a gradient, is none: losses are of the order of 1."""


def register_map_loss(name: str) -> Callable[[MapLoss], MapLoss]:
    """Register a function of scores and annotation, one value per sample, as a guidance loss.

    Args:
        name: What users call it.

    Raises:
        ValueError: If another loss has this name.
    """

    def register(function: MapLoss) -> MapLoss:
        @register_loss(name, Needs.MAP)
        def compute(batch: GuidedBatch) -> LossSum:
            scores = batch.relevance.scores
            annotation = batch.token_annotation
            _, judged = usable_scores(scores, annotation)
            return LossSum.over(MAP_LOSSES[name](scores, annotation), judged)

        MAP_LOSSES[name] = function
        return function

    return register


def guidance_loss(scores: Scores, annotation: TokenAnnotation, loss: str = "energy") -> Float[Tensor, ""]:
    """Return the mean loss over the samples that can be judged; 0 if there are none.

    Args:
        scores: Signed relevance, with its graph (`lrptrain.attribute(..., create_graph=True)`).
        annotation: Evidence at the same tokens.
        loss: One of `lrptrain.guidance.MAP_LOSSES`.

    Raises:
        ValueError: If the loss is unknown, or scores and annotation differ in shape.
    """
    if loss not in MAP_LOSSES:
        raise ValueError(f"unknown loss {loss!r}; known are {', '.join(MAP_LOSSES)}")
    _, judged = usable_scores(scores, annotation)
    return torch.where(judged, MAP_LOSSES[loss](scores, annotation), 0).sum() / judged.sum().clamp(min=1)


def positive_relevance(scores: Scores, annotation: TokenAnnotation) -> tuple[Scores, Bool[Tensor, " batch"]]:
    """Return A+ in [0, 1], and which samples can be judged."""
    scores, judged = usable_scores(scores, annotation)
    positive = scores.clamp(min=0)
    return ratio(positive, positive.amax(-1, keepdim=True)), judged


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return the quotient, and 0 (with a gradient of 0, not nan) where the denominator is not positive."""
    return torch.where(denominator > 0, numerator / torch.where(denominator > 0, denominator, 1), 0)


def valid_mean(values: Scores, annotation: TokenAnnotation, judged: Bool[Tensor, " batch"]) -> PerSample:
    """Return the mean over the valid area of each sample; 0 for samples that cannot be judged."""
    return torch.where(judged, ratio((values * annotation.valid).sum(-1), annotation.valid.sum(-1)), 0)
