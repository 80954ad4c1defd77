"""Losses on a relevance map and an annotation, one number per sample.

A map's scale says nothing, so that every loss takes it relative to its own largest entry or sum: A+ = relu(A) / max A+
over the usable tokens. What is ignored has no part in any of them. A map without positive entries stays all 0, and
then has no gradient; neither has a sample that cannot be judged: without annotation, or with entries that are not
finite.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.metrics.base import usable_scores

Scores = Float[Tensor, "batch tokens"]
PerSample = Float[Tensor, " batch"]
MapLoss = Callable[[Scores, TokenAnnotation], PerSample]
# Of the losses with a logarithm: the smallest share of relevance that they tell from none.
SMALLEST = 1e-6


def guidance_loss(scores: Scores, annotation: TokenAnnotation, loss: str = "energy") -> Float[Tensor, ""]:
    """Mean loss over the samples that can be judged; 0 if there are none.

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


def energy(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Share of the positive relevance outside the evidence: 1 - EPG, in [0, 1] (Rao et al., ICCV 2023, "energy").

    It has no gradient where no relevance inside is positive: there is nothing that it could strengthen. A map without
    any positive relevance counts as 1, lest a model that gave up all relevance looks well guided.
    """
    positive, judged = _positive(scores, annotation)
    mass = positive * annotation.valid
    outside, total = (mass * (1 - annotation.evidence)).sum(-1), mass.sum(-1)
    return torch.where(judged & (total <= 0), 1.0, _ratio(outside, total))


def l1(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Mean distance |M - A+| of map and mask, in [0, 1] (Rao et al., ICCV 2023, "L1")."""
    positive, judged = _positive(scores, annotation)
    return _mean((annotation.evidence - positive).abs(), annotation, judged)


def ppce(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Per-pixel cross-entropy on the evidence, -sum M log A+ / sum M (Rao et al., ICCV 2023, "PPCE"); not negative."""
    positive, _ = _positive(scores, annotation)
    evidence = annotation.evidence * annotation.valid
    return _ratio(-(evidence * positive.clamp(min=SMALLEST).log()).sum(-1), evidence.sum(-1))


def robust_vit(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """2 MSE(A (1 - M), 0) + 0.3 MSE(A M, M), A scaled to [0, 1] by its extremes (Chefer et al., NeurIPS 2022).

    The paper adds a term that keeps the prediction; that is not a loss on the map.
    """
    scores, judged = usable_scores(scores, annotation)
    usable = annotation.usable
    low = torch.where(usable, scores, torch.inf).amin(-1, keepdim=True)
    high = torch.where(usable, scores, -torch.inf).amax(-1, keepdim=True)
    low, width = torch.where(judged[:, None], low, 0), torch.where(judged[:, None] & (high > low), high - low, 1)
    scaled, evidence = torch.where(usable, (scores - low) / width, 0), annotation.evidence
    outside, inside = (scaled * (1 - evidence)) ** 2, (scaled * evidence - evidence) ** 2
    return 2 * _mean(outside, annotation, judged) + 0.3 * _mean(inside, annotation, judged)


def rationale_bce(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Binary cross-entropy of A+ with the rationale, mean over tokens (ER-Test, Joshi et al. 2022); not negative."""
    positive, judged = _positive(scores, annotation)
    share, evidence = positive.clamp(SMALLEST, 1 - SMALLEST), annotation.evidence
    return _mean(-(evidence * share.log() + (1 - evidence) * (1 - share).log()), annotation, judged)


def rationale_kl(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """KL divergence of A+ / sum A+ from the normalised rationale (ER-Test, Joshi et al. 2022).

    Not negative; 0 where relevance is spread over the rationale like the rationale itself. 0 for an empty rationale.
    """
    positive, _ = _positive(scores, annotation)
    mass, evidence = positive * annotation.valid, annotation.evidence * annotation.valid
    given = _ratio(evidence, evidence.sum(-1, keepdim=True))
    share = _ratio(mass, mass.sum(-1, keepdim=True)).clamp(min=SMALLEST)
    return torch.where(given > 0, given * (given.clamp(min=SMALLEST).log() - share.log()), 0).sum(-1)


def order(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Squared hinge: every marked token above the highest other one (after Huang et al. 2021), mean over the marked.

    In [0, 1] on A+. 0 where all or no usable tokens are marked.
    """
    positive, _ = _positive(scores, annotation)
    marked, others = annotation.marked, annotation.usable & ~annotation.marked
    highest = torch.where(others, positive, 0).amax(-1, keepdim=True)
    short = torch.where(marked, (highest - positive).clamp(min=0) ** 2, 0)
    return _ratio(short.sum(-1), marked.sum(-1).to(short.dtype))


MAP_LOSSES: dict[str, MapLoss] = {
    "energy": energy,
    "l1": l1,
    "ppce": ppce,
    "robust_vit": robust_vit,
    "rationale_bce": rationale_bce,
    "rationale_kl": rationale_kl,
    "order": order,
}


def _positive(scores: Scores, annotation: TokenAnnotation) -> tuple[Scores, Bool[Tensor, " batch"]]:
    """A+, and which samples can be judged."""
    scores, judged = usable_scores(scores, annotation)
    positive = scores.clamp(min=0)
    return _ratio(positive, positive.amax(-1, keepdim=True)), judged


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Their quotient, 0 where the denominator is."""
    return torch.where(denominator > 0, numerator / torch.where(denominator > 0, denominator, 1), 0)


def _mean(values: Scores, annotation: TokenAnnotation, judged: Bool[Tensor, " batch"]) -> PerSample:
    """Mean over the valid area of the samples that can be judged."""
    return torch.where(judged, _ratio((values * annotation.valid).sum(-1), annotation.valid.sum(-1)), 0)
