"""Distance of map and mask (Rao et al., ICCV 2023)."""

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.guidance.losses.map_loss import PerSample, Scores, positive_relevance, register_map_loss, valid_mean


@register_map_loss("l1")
def l1(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the mean distance |M - A+| of map and mask, in [0, 1] (Rao et al., "L1")."""
    positive, judged = positive_relevance(scores, annotation)
    return valid_mean((annotation.evidence - positive).abs(), annotation, judged)
