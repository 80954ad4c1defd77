"""Tests of attention itself on a subject: does the model need its weights, and these weights?"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.audit.adversarial_search import adversarial_attention
from lrptrain.audit.attention import content_tokens
from lrptrain.audit.distances import as_distribution, class_probabilities, jensen_shannon, total_variation
from lrptrain.audit.effort import Effort
from lrptrain.audit.frozen_attention import token_features, train_frozen
from lrptrain.audit.map_tests import floats
from lrptrain.audit.permutation import permuted_attention
from lrptrain.audit.store import Values
from lrptrain.audit.subject import Part, Subject
from lrptrain.audit.uniform import uniform_attention_logits
from lrptrain.relevance import Relevance

ATTENTION = "raw_attention"
"""The map that these tests are about: of the last block, mean over heads, the row that the classifier reads."""
UNIFORM, LEARNED = "uniform", "learned"
"""Weights of the token-wise model that come from no map."""


def uniform(subject: Subject, _: str, effort: Effort) -> Values:
    """The trained model with uniform attention everywhere.

    `right`, `right_uniform`, `same`: 1 or 0 per sample, the first two of those with a label; `tvd`: of the outputs;
    `jsd`: of the attention map from the uniform one.
    """
    logits = torch.cat([uniform_attention_logits(subject.model, part.inputs) for part in subject.parts])
    moved = total_variation(class_probabilities(subject.logits), class_probabilities(logits))
    distances = []
    for part, found in zip(subject.parts, subject.maps(ATTENTION), strict=True):
        usable = content_tokens(part.inputs, found.scores.shape[1])
        even = as_distribution(torch.zeros_like(found.scores), usable)
        distances.append(jensen_shannon(as_distribution(found.scores, usable), even))
    return {
        "right": right(subject.logits, subject.label),
        "right_uniform": right(logits, subject.label),
        "same": floats((subject.logits.argmax(1) == logits.argmax(1)).float()),
        "tvd": floats(moved),
        "jsd": floats(torch.cat(distances)),
    }


def permutation(subject: Subject, _: str, effort: Effort) -> Values:
    """`median_tvd`: of the output over shuffles of the attention weights; `largest_weight`: of these; per sample."""
    model, seed = subject.model, subject.seed
    found = [permuted_attention(model, part.inputs, effort.shuffles, seed) for part in subject.parts]
    return {
        "median_tvd": floats(torch.cat([each.median_tvd for each in found])),
        "largest_weight": floats(torch.cat([each.largest_weight for each in found])),
    }


def adversarial(subject: Subject, _: str, effort: Effort) -> Values:
    """`jsd`: of the most different attention that leaves the prediction; `change`: of the output; per sample."""
    steps, copies = effort.search_steps, effort.search_copies
    found = [
        adversarial_attention(subject.model, part.inputs, copies=copies, steps=steps, seed=subject.seed)
        for part in subject.parts
    ]
    return {
        "jsd": floats(torch.cat([each.jsd for each in found])),
        "change": floats(torch.cat([each.change for each in found])),
    }


def frozen(subject: Subject, weights: str, effort: Effort) -> Values:
    """`right`: 1 or 0 per labelled sample, for a token-wise model whose tokens are weighed by a method's maps.

    `weights` may also be "uniform" or "learned".
    """
    if weights in (UNIFORM, LEARNED):
        return {"right": token_model(subject, effort, learned=weights == LEARNED)}
    return {"right": token_model(subject, effort, (subject.train_maps(weights), subject.maps(weights)))}


def token_model(
    subject: Subject,
    effort: Effort,
    maps: tuple[Sequence[Relevance], Sequence[Relevance]] | None = None,
    learned: bool = False,
) -> list[float]:
    """Train a token-wise model whose tokens maps weigh, and say which of the subject's samples it reads right.

    Args:
        subject: With training samples.
        effort: Steps of the training.
        maps: Of the training samples and of the samples; uniform weights without.
        learned: Let it learn its own weights.
    """
    learn, test = (_tokens(subject, which) for which in ("train", "parts"))
    given = [None, None] if maps is None else maps
    model = train_frozen(
        learn.features,
        learn.usable,
        _weights(learn, given[0]),
        learn.label,
        classes=subject.logits.shape[1],
        steps=effort.frozen_steps,
        seed=subject.seed,
        learned=learned,
    )
    with torch.no_grad():
        logits = model(test.features, test.usable, _weights(test, given[1]))
    return right(logits, test.label)


def right(logits: Float[Tensor, "samples classes"], label: Int[Tensor, " samples"]) -> list[float]:
    """1 or 0 per labelled sample."""
    return floats((logits.argmax(1) == label)[label >= 0].float())


@dataclass(frozen=True)
class _Tokens:
    """What a token-wise model reads of all samples, padded to the longest."""

    features: Float[Tensor, "samples tokens width"]
    usable: Bool[Tensor, "samples tokens"]
    label: Int[Tensor, " samples"]


def _tokens(subject: Subject, which: str) -> _Tokens:
    def made() -> _Tokens:
        parts: Sequence[Part] = getattr(subject, which)
        features, usable = zip(*(token_features(subject.model, part.inputs) for part in parts), strict=True)
        return _Tokens(_padded(features).float(), _padded(usable), torch.cat([part.label for part in parts]))

    return subject.once(("tokens", which), made)


def _weights(tokens: _Tokens, maps: Sequence[Relevance] | None) -> Float[Tensor, "samples tokens"]:
    """Those of a method's maps; uniform without."""
    scores = torch.zeros(tokens.usable.shape, device=tokens.usable.device)
    if maps is not None:
        scores = _padded([each.scores for each in maps]).float()
    return as_distribution(scores, tokens.usable)


def _padded(parts: Sequence[Tensor]) -> Tensor:
    """All samples of parts of different lengths, filled up with 0."""
    return torch.nn.utils.rnn.pad_sequence([row for part in parts for row in part], batch_first=True)
