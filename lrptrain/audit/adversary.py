"""A second model with the same answers and other explanations (Wiegreffe & Pinter 2019, section 4)."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.audit.attention import content_tokens, evaluating
from lrptrain.audit.distances import (
    as_distribution,
    class_probabilities,
    jensen_shannon,
    kullback_leibler,
    total_variation,
)
from lrptrain.batch import model_inputs
from lrptrain.relevance import record
from lrptrain.relevance.preserve import unwrap
from lrptrain.relevance.recording import Inputs, Recording, Target

Batches = Sequence[Mapping[str, Tensor]]

FLOOR = 1e-3
"""Share of a uniform distribution in what the divergence of maps is taken of: it is infinite where one of them is 0."""
KICK = 0.02
"""Noise on the weights at the start, by their standard deviation: two equal models have equal maps, and no gradient."""


@dataclass(frozen=True)
class ModelDifference:
    """How far apart two models are, in what they answer and in how a method explains it.

    Attributes:
        tvd: Total variation distance of the class probabilities, per sample, in [0, 1].
        jsd: Jensen-Shannon divergence of the maps over the content tokens, per sample, in nats, in [0, ln 2].
        agreement: Share of samples with the same predicted class.
    """

    tvd: Float[Tensor, " samples"]
    jsd: Float[Tensor, " samples"]
    agreement: float


@dataclass(frozen=True)
class _Answer:
    probabilities: Float[Tensor, "batch classes"]
    map: Float[Tensor, "batch tokens"]
    usable: Bool[Tensor, "batch tokens"]
    target: Int[Tensor, " batch"]


def train_adversary(
    model: nn.Module,
    batches: Batches,
    method: str = "raw_attention",
    strength: float = 0.1,
    steps: int = 200,
    lr: float = 1e-4,
    seed: int = 0,
    start: nn.Module | None = None,
) -> nn.Module:
    """Train a model that answers as another one does, with different maps.

    The loss is the mean over samples of TVD(y_a, y_b) - strength * KL(a || b): y are the class probabilities and a, b
    the maps, as distributions over the content tokens, of the class that the original model predicts (a small share of
    a uniform one keeps the divergence finite). Both models run in evaluation mode.

    Args:
        model: Which to answer as; run in evaluation mode and left as it was.
        batches: In the contract of `lrptrain.batch`, where the model is; gone through again and again.
        method: Whose maps are to differ: any that can be differentiated.
        strength: Of the difference of the maps; 0 trains for the same answers alone.
        steps: Batches to train on.
        lr: Of Adam (AMSGrad).
        seed: Of the noise that takes the copy off the model it starts from.
        start: The model to start from, such as a newly initialised one; the model itself if there is none. A copy is
            trained, all of its parameters.

    Returns:
        The trained copy, in evaluation mode.

    Raises:
        ValueError: If there are no batches.
        UnsupportedMethodError: If the method cannot be differentiated.
    """
    if not batches:
        raise ValueError("an adversary needs at least one batch to train on")
    other = _kicked(model if start is None else start, seed)
    optimizer = torch.optim.Adam(other.parameters(), lr, amsgrad=True)
    known: dict[int, _Answer] = {}
    for step in range(steps):
        at = step % len(batches)
        if at not in known:
            known[at] = _answer(model, model_inputs(model, batches[at]), method)
        with evaluating(other), torch.enable_grad():
            loss = adversary_loss(other, model_inputs(other, batches[at]), method, known[at], strength)
            parameters = [parameter for parameter in other.parameters() if parameter.requires_grad]
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    other.zero_grad(set_to_none=True)
    return other.eval()


def compare_models(model: nn.Module, other: nn.Module, batches: Batches, method: str) -> ModelDifference:
    """How far another model's answers and maps are from a model's: an adversary's, or those of another seed.

    Args:
        model: Whose predicted class is explained, in both; left as it was.
        other: Of the same tokens; left as it was.
        batches: In the contract of `lrptrain.batch`, where the models are.
        method: One of `lrptrain.methods()`; its maps are compared as distributions over the content tokens, by their
            positive part.

    Raises:
        ValueError: If there are no batches.
    """
    if not batches:
        raise ValueError("two models need at least one batch to be compared on")
    tvd, jsd, equal = [], [], []
    for batch in batches:
        one = _answer(model, model_inputs(model, batch), method)
        two = _answer(other, model_inputs(other, batch), method, one.target)
        tvd.append(total_variation(one.probabilities, two.probabilities))
        jsd.append(jensen_shannon(one.map, two.map))
        equal.append(one.probabilities.argmax(1) == two.probabilities.argmax(1))
    return ModelDifference(torch.cat(tvd), torch.cat(jsd), torch.cat(equal).double().mean().item())


def adversary_loss(
    other: nn.Module, inputs: Inputs, method: str, original: _Answer, strength: float
) -> Float[Tensor, ""]:
    """What an adversary minimises, see `train_adversary`."""
    recorded = record(other, inputs)
    scores = recorded.attribute(original.target, method, create_graph=True).scores
    far = total_variation(class_probabilities(recorded.output.tensor), original.probabilities)
    own, theirs = (_never_zero(x, original.usable) for x in (as_distribution(scores, original.usable), original.map))
    return (far - strength * kullback_leibler(own, theirs)).mean()


def _answer(model: nn.Module, inputs: Inputs, method: str, target: Target = None) -> _Answer:
    with evaluating(model) as model:
        recorded: Recording = record(model, inputs)
        relevance = recorded.attribute(target, method)
    usable = content_tokens(inputs, relevance.scores.shape[1])
    probabilities = class_probabilities(recorded.logits)
    return _Answer(probabilities, as_distribution(relevance.scores.detach(), usable), usable, relevance.target)


def _never_zero(p: Tensor, usable: Tensor) -> Tensor:
    return (1 - FLOOR) * p + FLOOR * as_distribution(torch.ones_like(p), usable)


@torch.no_grad()
def _kicked(model: nn.Module, seed: int) -> nn.Module:
    """A copy of the model with a little noise on its weights, to be trained."""
    other = copy.deepcopy(unwrap(model)).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in other.parameters():
        parameter.grad = None
        if parameter.is_floating_point():
            parameter.requires_grad_()
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.add_(KICK * parameter.std(correction=0) * noise)
    return other
