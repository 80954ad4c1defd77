"""How far apart two distributions are, and how a map becomes one."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.relevance.propagation.propagator import at_least_float32

Distribution = Float[Tensor, "*batch entries"]
DIFFERENT_MAP_JSD = 0.35
"""Jensen-Shannon divergence from which two maps are different: half of the largest possible one, ln 2 = 0.69."""


def total_variation(p: Distribution, q: Distribution) -> Float[Tensor, "*batch"]:
    """Return 1/2 sum |p - q| over the last axis, in [0, 1]."""
    return (at_least_float32(p) - at_least_float32(q)).abs().sum(-1) / 2


def jensen_shannon(p: Distribution, q: Distribution) -> Float[Tensor, "*batch"]:
    """Return the mean divergence of both from their mean, over the last axis, in nats: in [0, ln 2].

    Entries of 0 add nothing, neither to the value nor to the gradient.
    """
    p = at_least_float32(p)
    q = at_least_float32(q)
    return ((_divergence_from_mean(p, q) + _divergence_from_mean(q, p)) / 2).clamp(0, math.log(2))


def _divergence_from_mean(p: Tensor, q: Tensor) -> Tensor:
    """Return sum p log(p / m) with m = (p + q) / 2: p / m is 1 + (p - q) / (p + q), exact where they are close."""
    positive = p > 0
    difference = torch.where(positive, p - q, 0) / torch.where(positive, p + q, 1)
    # A p that is tiny beside q rounds to a difference of -1, of which the logarithm is infinite.
    return (p * difference.clamp(min=torch.finfo(p.dtype).eps - 1).log1p()).sum(-1)


def kullback_leibler(p: Distribution, q: Distribution) -> Float[Tensor, "*batch"]:
    """Return the sum of p log(p / q) over the last axis, in nats; q must not be 0 where p is not."""
    p = at_least_float32(p)
    q = at_least_float32(q)
    positive = p > 0
    return (p * (torch.where(positive, p, 1) / torch.where(positive, q, 1)).log()).sum(-1)


def as_distribution(
    scores: Float[Tensor, "batch tokens"], usable: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "batch tokens"]:
    """Return the positive part of a map over the usable tokens, summing to 1; uniform where nothing is positive.

    Where no token is usable, the result is 0.
    """
    # Negative relevance speaks against the class: it is no share of the evidence for it.
    positive = torch.where(usable, at_least_float32(scores), 0).clamp(min=0)
    uniform = usable.to(positive.dtype)
    total = positive.sum(-1, keepdim=True)
    # Where nothing is positive, no token is preferred.
    weights = torch.where(total > 0, positive, uniform)
    return weights / torch.where(total > 0, total, uniform.sum(-1, keepdim=True).clamp(min=1))
