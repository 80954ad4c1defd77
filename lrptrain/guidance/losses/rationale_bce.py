"""Binary cross-entropy of map and rationale (ER-Test, Joshi et al. 2022)."""

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.guidance.losses.map_loss import (
    ROUNDING,
    PerSample,
    Scores,
    positive_relevance,
    register_map_loss,
    valid_mean,
)


@register_map_loss("rationale_bce")
def rationale_bce(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the binary cross-entropy of A+ with the rationale, the mean over tokens; not negative."""
    positive, judged = positive_relevance(scores, annotation)
    share = positive.clamp(ROUNDING, 1 - ROUNDING)
    evidence = annotation.evidence
    return valid_mean(-(evidence * share.log() + (1 - evidence) * (1 - share).log()), annotation, judged)
