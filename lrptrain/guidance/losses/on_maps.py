"""The losses on a relevance map: how they are registered, their arithmetic, and each of them.

A loss is a function of scores and annotation that returns one number per sample. The scale of a map says nothing, so
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


@register_map_loss("energy")
def energy(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the share of the positive relevance outside the evidence: 1 - EPG, in [0, 1] (Rao et al., ICCV 2023).

    It has no gradient where no relevance inside is positive: there is nothing that it could strengthen. A map without
    any positive relevance counts as 1, so that a model that gives up all relevance does not look well guided.
    """
    positive, judged = positive_relevance(scores, annotation)
    mass = positive * annotation.valid
    outside = (mass * (1 - annotation.evidence)).sum(-1)
    total = mass.sum(-1)
    return torch.where(judged & (total <= 0), 1.0, ratio(outside, total))


@register_map_loss("l1")
def l1(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the mean distance |M - A+| of map and mask, in [0, 1] (Rao et al., "L1")."""
    positive, judged = positive_relevance(scores, annotation)
    return valid_mean((annotation.evidence - positive).abs(), annotation, judged)


@register_map_loss("ppce")
def ppce(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the cross-entropy on the evidence, -sum M log A+ / sum M, not negative (Rao et al., "PPCE")."""
    positive, _ = positive_relevance(scores, annotation)
    evidence = annotation.evidence * annotation.valid
    return ratio(-(evidence * positive.clamp(min=ROUNDING).log()).sum(-1), evidence.sum(-1))


@register_map_loss("order")
def order(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the squared hinge that puts every marked token above the highest other one (after Huang et al. 2021).

    The mean over the marked tokens, in [0, 1] on A+. 0 where all or no usable tokens are marked.
    """
    positive, _ = positive_relevance(scores, annotation)
    marked = annotation.marked
    others = annotation.usable & ~marked
    highest = torch.where(others, positive, 0).amax(-1, keepdim=True)
    short = torch.where(marked, (highest - positive).clamp(min=0) ** 2, 0)
    return ratio(short.sum(-1), marked.sum(-1).to(short.dtype))


@register_map_loss("rationale_bce")
def rationale_bce(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the binary cross-entropy of A+ with the rationale, the mean over tokens (ER-Test, Joshi et al. 2022)."""
    positive, judged = positive_relevance(scores, annotation)
    share = positive.clamp(ROUNDING, 1 - ROUNDING)
    evidence = annotation.evidence
    return valid_mean(-(evidence * share.log() + (1 - evidence) * (1 - share).log()), annotation, judged)


@register_map_loss("rationale_kl")
def rationale_kl(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the KL divergence of A+ / sum A+ from the normalised rationale, in nats (ER-Test, Joshi et al. 2022).

    Not negative; 0 where relevance is spread over the rationale like the rationale itself, and for an empty rationale.
    """
    positive, _ = positive_relevance(scores, annotation)
    mass = positive * annotation.valid
    evidence = annotation.evidence * annotation.valid
    wanted = ratio(evidence, evidence.sum(-1, keepdim=True))
    share = ratio(mass, mass.sum(-1, keepdim=True)).clamp(min=ROUNDING)
    return torch.where(wanted > 0, wanted * (wanted.clamp(min=ROUNDING).log() - share.log()), 0).sum(-1)


@register_map_loss("robust_vit")
def robust_vit(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return 2 MSE(A (1 - M), 0) + 0.3 MSE(A M, M), with A scaled to [0, 1] by its extremes (RobustViT).

    The paper (Chefer, Schwartz, Wolf, NeurIPS 2022) adds a term that keeps the prediction, which is none on the map.
    """
    scores, judged = usable_scores(scores, annotation)
    usable = annotation.usable
    low = torch.where(usable, scores, torch.inf).amin(-1, keepdim=True)
    high = torch.where(usable, scores, -torch.inf).amax(-1, keepdim=True)
    # A constant map has no width: it becomes 0 throughout, not nan.
    width = torch.where(judged[:, None] & (high > low), high - low, 1)
    low = torch.where(judged[:, None], low, 0)
    scaled = torch.where(usable, (scores - low) / width, 0)
    evidence = annotation.evidence
    outside = (scaled * (1 - evidence)) ** 2
    inside = (scaled * evidence - evidence) ** 2
    return 2 * valid_mean(outside, annotation, judged) + 0.3 * valid_mean(inside, annotation, judged)
