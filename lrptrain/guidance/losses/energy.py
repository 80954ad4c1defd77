"""Relevance outside the evidence (Rao et al., ICCV 2023)."""

import torch

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.guidance.losses.map_loss import PerSample, Scores, positive_relevance, ratio, register_map_loss


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
