"""The losses on a relevance map: `energy`, `l1` and `ppce` are of Rao et al., ICCV 2023."""

import torch

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.guidance.losses.map_loss import (
    ROUNDING,
    PerSample,
    Scores,
    positive_relevance,
    ratio,
    register_map_loss,
    valid_mean,
)
from lrptrain.metrics.base import usable_scores


@register_map_loss("energy")
def energy(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the share of the positive relevance outside the evidence: 1 - EPG, in [0, 1] (Rao et al., "energy").

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
