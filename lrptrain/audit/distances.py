"""How far apart two distributions are, and how a map becomes one."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.metrics.base import at_least_float32

Distribution = Float[Tensor, "*batch entries"]


def total_variation(p: Distribution, q: Distribution) -> Float[Tensor, "*batch"]:
    """1/2 sum |p - q| over the last axis, in [0, 1]."""
    return (at_least_float32(p) - at_least_float32(q)).abs().sum(-1) / 2


def jensen_shannon(p: Distribution, q: Distribution) -> Float[Tensor, "*batch"]:
    """Mean divergence of both from their mean, over the last axis, in nats: in [0, ln 2].

    Entries of 0 add nothing, neither to the value nor to the gradient.
    """
    p, q = at_least_float32(p), at_least_float32(q)
    return ((_from_the_mean(p, q) + _from_the_mean(q, p)) / 2).clamp(0, math.log(2))


def _from_the_mean(p: Tensor, q: Tensor) -> Tensor:
    """sum p log(p / m) with m = (p + q) / 2: p / m is 1 + (p - q) / (p + q), exact where they are close."""
    there = p > 0
    difference = torch.where(there, p - q, 0) / torch.where(there, p + q, 1)
    return (p * difference.clamp(min=torch.finfo(p.dtype).eps - 1).log1p()).sum(-1)  # p may be lost beside q


def kullback_leibler(p: Distribution, q: Distribution) -> Float[Tensor, "*batch"]:
    """Sum of p log(p / q) over the last axis, in nats; q must not be 0 where p is not."""
    p, q = at_least_float32(p), at_least_float32(q)
    there = p > 0
    return (p * (torch.where(there, p, 1) / torch.where(there, q, 1)).log()).sum(-1)


def as_distribution(
    scores: Float[Tensor, "batch tokens"], usable: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "batch tokens"]:
    """The positive part of a map over the usable tokens, summing to 1; uniform where nothing is positive.

    Where no token is usable it is 0.
    """
    positive = torch.where(usable, at_least_float32(scores), 0).clamp(min=0)
    uniform = usable.to(positive.dtype)
    total = positive.sum(-1, keepdim=True)
    found = torch.where(total > 0, positive, uniform)
    whole = torch.where(total > 0, total, uniform.sum(-1, keepdim=True).clamp(min=1))
    return found / whole


def class_probabilities(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch _classes"]:
    """Of a model's logits; a single logit stands for two classes."""
    logits = at_least_float32(logits)
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    return logits.softmax(1)
