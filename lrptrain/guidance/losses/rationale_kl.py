"""Divergence of map and rationale (ER-Test, Joshi et al. 2022)."""

import torch

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.guidance.losses.map_loss import (
    ROUNDING,
    PerSample,
    Scores,
    positive_relevance,
    ratio,
    register_map_loss,
)


@register_map_loss("rationale_kl")
def rationale_kl(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the KL divergence of A+ / sum A+ from the normalised rationale, in nats.

    Not negative; 0 where relevance is spread over the rationale like the rationale itself, and for an empty rationale.
    """
    positive, _ = positive_relevance(scores, annotation)
    mass = positive * annotation.valid
    evidence = annotation.evidence * annotation.valid
    wanted = ratio(evidence, evidence.sum(-1, keepdim=True))
    share = ratio(mass, mass.sum(-1, keepdim=True)).clamp(min=ROUNDING)
    return torch.where(wanted > 0, wanted * (wanted.clamp(min=ROUNDING).log() - share.log()), 0).sum(-1)
