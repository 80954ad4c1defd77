"""Per-pixel cross-entropy of map and mask (Rao et al., ICCV 2023)."""

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.guidance.losses.map_loss import (
    ROUNDING,
    PerSample,
    Scores,
    positive_relevance,
    ratio,
    register_map_loss,
)


@register_map_loss("ppce")
def ppce(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the cross-entropy on the evidence, -sum M log A+ / sum M, not negative (Rao et al., "PPCE")."""
    positive, _ = positive_relevance(scores, annotation)
    evidence = annotation.evidence * annotation.valid
    return ratio(-(evidence * positive.clamp(min=ROUNDING).log()).sum(-1), evidence.sum(-1))
