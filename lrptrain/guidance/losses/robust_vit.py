"""The map's part of RobustViT (Chefer, Schwartz, Wolf, NeurIPS 2022)."""

import torch

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.guidance.losses.map_loss import PerSample, Scores, register_map_loss, valid_mean
from lrptrain.metrics.base import usable_scores


@register_map_loss("robust_vit")
def robust_vit(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return 2 MSE(A (1 - M), 0) + 0.3 MSE(A M, M), with A scaled to [0, 1] by its extremes.

    The paper adds a term that keeps the prediction; that is not a loss on the map.
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
