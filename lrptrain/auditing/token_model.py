"""A model of single tokens, which given weights combine: do the weights of a map help it?

Wiegreffe & Pinter 2019, section 3.4, "diagnosing attention distributions by guiding simpler models".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lrptrain.auditing.attention import content_of_map, evaluating
from lrptrain.auditing.context import AuditBatch, AuditContext, correct_predictions
from lrptrain.auditing.distances import as_distribution
from lrptrain.relevance import Relevance, record
from lrptrain.relevance.passes.recording import Inputs

TokenFeatures = Float[Tensor, "batch tokens width"]
Usable = Bool[Tensor, "batch tokens"]
Weights = Float[Tensor, "batch tokens"]


class TokenMLP(nn.Module):
    """One hidden layer on every token by itself, a weighted sum over tokens, and a linear classifier.

    Args:
        width: Number of features of a token.
        classes: Number of classes.
        learned: Whether the model learns its own weights, a softmax over a linear score of every hidden state; it then
            ignores the weights that it is called with.
        hidden: Width of the hidden layer.
    """

    def __init__(self, width: int, classes: int, learned: bool = False, hidden: int = 128):
        super().__init__()
        # The order of these lines is the order in which a seed draws the weights.
        self.hidden = nn.Linear(width, hidden)
        self.classifier = nn.Linear(hidden, classes)
        self.score = nn.Linear(hidden, 1) if learned else None

    def forward(self, features: TokenFeatures, usable: Usable, weights: Weights) -> Float[Tensor, "batch classes"]:
        """Return the logits."""
        states = self.hidden(features).tanh()
        if self.score is not None:
            lowest = torch.finfo(states.dtype).min  # not -inf: a text without content would be nan
            weights = self.score(states)[..., 0].masked_fill(~usable, lowest).softmax(1)
        weights = torch.where(usable, weights.to(states.dtype), 0)
        # [batch, 1, tokens] @ [batch, tokens, hidden]: the weighted mean of the states
        return self.classifier((weights[:, None] @ states)[:, 0])


def token_features(model: nn.Module, inputs: Inputs) -> tuple[TokenFeatures, Usable]:
    """Return what a model reads at every token before it mixes tokens, and which tokens are content.

    Features are the word embeddings of a text, and the pixels of every patch of an image.

    Args:
        model: As for `lrptrain.attribute`; left as it was.
        inputs: As for `lrptrain.attribute`.
    """
    with evaluating(model) as model:
        recording = record(model, inputs)
    assert recording.tape.leaf is not None
    features = recording.tape.leaf.detach()
    if features.ndim == 4:
        rows, columns = recording.patch_grid
        size = features.shape[-2] // rows, features.shape[-1] // columns
        # Pixels beyond the last whole patch are not read by the model.
        read_pixels = features[..., : rows * size[0], : columns * size[1]]
        # [batch, 3, height, width] -> [batch, 3 * patch pixels, patches] -> [batch, patches, 3 * patch pixels]
        features = F.unfold(read_pixels, size, stride=size).mT
    return features, content_of_map(inputs, features.shape[1])


def train_frozen(
    features: TokenFeatures,
    usable: Usable,
    weights: Weights,
    labels: Int[Tensor, " batch"],
    *,
    classes: int,
    steps: int = 500,
    lr: float = 1e-3,
    seed: int = 0,
    learned: bool = False,
    batch_size: int = 64,
) -> TokenMLP:
    """Train a `TokenMLP` with fixed weights by Adam with the cross-entropy, on random batches.

    Weights that hold information help it more than uniform ones.

    Args:
        features: From `token_features`.
        usable: The content tokens.
        weights: Weights of the tokens, summing to 1: of a map by `as_distribution`, or uniform. They are not trained.
        labels: Classes; samples with a negative label are left out.
        classes: Number of classes.
        steps: Number of batches.
        lr: Learning rate.
        seed: Seed of the initial weights and the batches. The caller's random state stays.
        learned: Whether the model learns weights of its own instead.
        batch_size: Samples of a batch.

    Raises:
        ValueError: If no sample has a label.
    """
    labelled = (labels >= 0).nonzero()[:, 0]
    if not len(labelled):
        raise ValueError("no sample has a label (0 or more): there is nothing to train on")
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = TokenMLP(features.shape[-1], classes, learned)
    model = model.to(features)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        # Drawn on the CPU, so that the batches do not depend on the device.
        rows = labelled[torch.randperm(len(labelled), generator=generator)[:batch_size].to(labelled.device)]
        with torch.enable_grad():
            logits = model(features[rows], usable[rows], weights[rows])
            loss = F.cross_entropy(logits, labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.requires_grad_(False).eval()


@torch.no_grad()
def accuracy(
    model: nn.Module, features: TokenFeatures, usable: Usable, weights: Weights, labels: Int[Tensor, " batch"]
) -> float:
    """Return the share of the labelled samples that a `TokenMLP` classifies correctly; nan without any."""
    labelled = labels >= 0
    is_correct = model(features, usable, weights).argmax(1) == labels
    return is_correct[labelled].double().mean().item()


def token_model_accuracy(
    context: AuditContext,
    steps: int,
    train_maps: Sequence[Relevance] | None = None,
    maps: Sequence[Relevance] | None = None,
    learned: bool = False,
) -> list[float]:
    """Train a token-wise model on the training samples of an audit, and test it on the samples.

    Args:
        context: An audit with training samples.
        steps: Steps of the training.
        train_maps: Maps of the training samples, which weigh the tokens; uniform weights without.
        maps: Maps of the samples, likewise.
        learned: Whether the model learns its own weights instead.

    Returns:
        1 (correct) or 0 (wrong) for every sample with a label.
    """
    train = tokens_of(context, "train_batches")
    test = tokens_of(context, "batches")
    model = train_frozen(
        train.features,
        train.usable,
        _token_weights(train, train_maps),
        train.label,
        classes=context.logits.shape[1],
        steps=steps,
        seed=context.seed,
        learned=learned,
    )
    with torch.no_grad():
        logits = model(test.features, test.usable, _token_weights(test, maps))
    return correct_predictions(logits, test.label)


@dataclass(frozen=True)
class TokenSamples:
    """What a token-wise model reads of all samples, padded to the longest.

    Attributes:
        features: What the model under audit reads at every token.
        usable: The content tokens.
        label: The classes; -1 where there is none.
    """

    features: Float[Tensor, "samples tokens width"]
    usable: Bool[Tensor, "samples tokens"]
    label: Int[Tensor, " samples"]


def tokens_of(context: AuditContext, attribute: str) -> TokenSamples:
    """Return the tokens of `context.batches` or `context.train_batches`, computed once."""

    def compute() -> TokenSamples:
        batches: Sequence[AuditBatch] = getattr(context, attribute)
        features, usable = zip(*(token_features(context.model, batch.inputs) for batch in batches), strict=True)
        label = torch.cat([batch.label for batch in batches])
        return TokenSamples(_pad_to_longest(features).float(), _pad_to_longest(usable), label)

    return context.cached(("tokens", attribute), compute)


def _token_weights(tokens: TokenSamples, maps: Sequence[Relevance] | None) -> Float[Tensor, "samples tokens"]:
    """Return the weights that maps give the tokens; uniform ones without maps."""
    scores = torch.zeros(tokens.usable.shape, device=tokens.usable.device)
    if maps is not None:
        scores = _pad_to_longest([relevance.scores for relevance in maps]).float()
    return as_distribution(scores, tokens.usable)


def _pad_to_longest(batches: Sequence[Tensor]) -> Tensor:
    """Return all samples of batches of different lengths in one tensor, padded with 0."""
    return torch.nn.utils.rnn.pad_sequence([row for batch in batches for row in batch], batch_first=True)
