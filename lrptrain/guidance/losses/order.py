"""Every marked token above all others (after Huang et al. 2021)."""

import torch

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.guidance.losses.map_loss import PerSample, Scores, positive_relevance, ratio, register_map_loss


@register_map_loss("order")
def order(scores: Scores, annotation: TokenAnnotation) -> PerSample:
    """Return the squared hinge that puts every marked token above the highest other one, mean over the marked tokens.

    In [0, 1] on A+. 0 where all or no usable tokens are marked.
    """
    positive, _ = positive_relevance(scores, annotation)
    marked = annotation.marked
    others = annotation.usable & ~marked
    highest = torch.where(others, positive, 0).amax(-1, keepdim=True)
    short = torch.where(marked, (highest - positive).clamp(min=0) ** 2, 0)
    return ratio(short.sum(-1), marked.sum(-1).to(short.dtype))
