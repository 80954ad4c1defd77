"""Rankings of scores per sample, batched, with ties counted fairly. Entries that are not usable do not take part."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.relevance.propagation.propagator import at_least_float32


def average_precision(
    scores: Float[Tensor, "batch entries"],
    positive: Bool[Tensor, "batch entries"],
    usable: Bool[Tensor, "batch entries"],
) -> Float[Tensor, " batch"]:
    """Return the average precision: the sum over thresholds of (gain in recall) * precision; ties are one threshold.

    Step-wise as in scikit-learn's `average_precision_score`, not the trapezoidal area.

    Args:
        scores: Finite where usable; higher means more likely positive.
        positive: The truth.
        usable: Entries that take part.

    Returns:
        In (0, 1], higher is better; nan where no usable entry is positive. Equal scores give the share of positives.
    """
    scores = at_least_float32(scores)
    order = torch.where(usable, scores, -torch.inf).sort(-1)
    ascending = order.values.contiguous()
    is_positive = (positive & usable).gather(-1, order.indices)
    # Ascending scores [1, 2, 2, 3] give [0, 1, 1, 3], and so [4, 3, 3, 1] that score at least as much.
    first_tied = torch.searchsorted(ascending, ascending)
    at_least = scores.shape[-1] - first_tied
    # Entries with tied scores are one threshold: each has the precision of all that score at least as much.
    total = is_positive.sum(-1, keepdim=True)
    positives_below = is_positive.cumsum(-1) - is_positive.long()
    positives_at_least = total - positives_below.gather(-1, first_tied)
    precision = positives_at_least.to(scores.dtype) / at_least
    return torch.where(is_positive, precision, 0).sum(-1) / total.squeeze(-1)


def expected_hits(
    scores: Float[Tensor, "batch entries"],
    hits: Bool[Tensor, "batch entries"],
    usable: Bool[Tensor, "batch entries"],
    k: Int[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """Return how many of the k highest usable scores are hits; the mean over tie-breaks of a tied k-th place."""
    scores = at_least_float32(scores)
    places = torch.minimum(k, usable.sum(-1))
    ranked = torch.where(usable, scores, -torch.inf).sort(-1, descending=True).values
    last = ranked.gather(-1, (places - 1).clamp(min=0)[:, None])
    # Scores [3, 2, 2, 1] and k = 2: the 3 has a place, the two 2s share the other one.
    above = usable & (scores > last)
    tied = usable & (scores == last)
    # Places that are left for tied entries hit as often as these are hits.
    hit_rate = (tied & hits).sum(-1).to(scores.dtype) / tied.sum(-1).clamp(min=1)
    return (above & hits).sum(-1) + (places - above.sum(-1)) * hit_rate


def select_top(
    scores: Float[Tensor, "batch entries"], usable: Bool[Tensor, "batch entries"], k: int | Int[Tensor, "batch 1"]
) -> Bool[Tensor, "batch entries"]:
    """Select the k highest usable entries (k for all, or per sample), all if there are fewer; of ties the earlier."""
    order = torch.where(usable, scores, -torch.inf).sort(dim=-1, descending=True, stable=True).indices
    places = torch.arange(scores.shape[-1], device=scores.device).expand_as(order)
    rank = torch.empty_like(order).scatter(-1, order, places)
    return usable & (rank < k)


def rank_correlation(
    first: Float[Tensor, "batch entries"],
    second: Float[Tensor, "batch entries"],
    usable: Bool[Tensor, "batch entries"],
) -> Float[Tensor, " batch"]:
    """Return Spearman's rank correlation per sample, tied entries sharing the average of their ranks.

    Returns:
        In [-1, 1]; nan where either is constant, or not finite where usable.
    """
    finite = ((first.isfinite() & second.isfinite()) | ~usable).all(-1)
    a, b = (_centred_ranks(torch.where(finite[:, None], scores, 0), usable) for scores in (first, second))
    correlation = (a * b).sum(-1) / ((a * a).sum(-1) * (b * b).sum(-1)).sqrt()
    return torch.where(finite, correlation, torch.nan)


def _centred_ranks(
    scores: Float[Tensor, "batch entries"], usable: Bool[Tensor, "batch entries"]
) -> Float[Tensor, "batch entries"]:
    """Return ranks less their mean; 0 where not usable."""
    scores = torch.where(usable, at_least_float32(scores), torch.inf).contiguous()
    ascending = scores.sort(-1).values.contiguous()
    # Scores [1, 2, 2]: below [0, 1, 1], up to [1, 3, 3], ranks [.5, 2, 2]; unusable ones, at inf, push none up.
    below, up_to = (torch.searchsorted(ascending, scores, side=side) for side in ("left", "right"))
    ranks = torch.where(usable, (below + up_to).to(scores.dtype) / 2, 0)
    return torch.where(usable, ranks - ranks.sum(-1, keepdim=True) / usable.sum(-1, keepdim=True), 0)
