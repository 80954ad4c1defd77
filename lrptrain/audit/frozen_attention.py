"""Are attention weights of use to another model, which they weigh single tokens for?

Wiegreffe & Pinter 2019, section 3.4, "diagnosing attention distributions by guiding simpler models".
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from lrptrain.audit.attention import content_tokens, evaluating
from lrptrain.relevance import record
from lrptrain.relevance.recording import Inputs

Features = Float[Tensor, "batch tokens width"]
Usable = Bool[Tensor, "batch tokens"]
Weights = Float[Tensor, "batch tokens"]


class TokenMLP(nn.Module):
    """One hidden layer on every token by itself, summed with given weights, and a linear classifier.

    Args:
        width: Of a token's features.
        classes: Number of classes.
        learned: Whether it makes its own weights, a softmax over a linear score of every hidden state; the given ones
            are then not used.
        hidden: Width of the hidden layer.
    """

    def __init__(self, width: int, classes: int, learned: bool = False, hidden: int = 128):
        super().__init__()
        self.hidden, self.classifier = nn.Linear(width, hidden), nn.Linear(hidden, classes)
        self.score = nn.Linear(hidden, 1) if learned else None

    def forward(self, features: Features, usable: Usable, weights: Weights) -> Float[Tensor, "batch classes"]:
        """The logits."""
        states = self.hidden(features).tanh()
        if self.score is not None:
            lowest = torch.finfo(states.dtype).min  # not -inf: a text without content would be nan
            weights = self.score(states)[..., 0].masked_fill(~usable, lowest).softmax(1)
        weights = torch.where(usable, weights.to(states.dtype), 0)
        return self.classifier((weights[:, None] @ states)[:, 0])


def token_features(model: nn.Module, inputs: Inputs) -> tuple[Features, Usable]:
    """What a model reads at every token, before any token has seen another one, and which tokens are content.

    Of a text the word embeddings, of an image the pixels of every patch.

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
        whole = features[..., : rows * size[0], : columns * size[1]]
        features = F.unfold(whole, size, stride=size).mT
    return features, content_tokens(inputs, features.shape[1])


def train_frozen(
    features: Features,
    usable: Usable,
    weights: Weights,
    labels: Int[Tensor, " batch"],
    *,
    classes: int,
    steps: int = 500,
    lr: float = 1e-3,
    seed: int = 0,
    learned: bool = False,
    at_once: int = 64,
) -> TokenMLP:
    """Train a `TokenMLP` with the cross-entropy, by Adam, on random batches.

    Attention weights that hold information help it more than uniform ones.

    Args:
        features: From `token_features`.
        usable: The content tokens.
        weights: Of the tokens, summing to 1: of a map by `as_distribution`, or uniform. They are not trained.
        labels: Classes; negative ones are left out.
        classes: Number of classes.
        steps: Batches.
        lr: Learning rate.
        seed: Of the initial weights and the batches. The caller's random state stays.
        learned: Let the model learn weights of its own instead.
        at_once: Samples of a batch.

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
    optimizer, generator = torch.optim.Adam(model.parameters(), lr), torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = labelled[torch.randperm(len(labelled), generator=generator)[:at_once].to(labelled.device)]
        with torch.enable_grad():
            logits = model(features[rows], usable[rows], weights[rows])
            loss = F.cross_entropy(logits, labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.requires_grad_(False).eval()


@torch.no_grad()
def accuracy(
    model: nn.Module, features: Features, usable: Usable, weights: Weights, labels: Int[Tensor, " batch"]
) -> float:
    """Share of the labelled samples that a `TokenMLP` classifies right; nan without any."""
    labelled = labels >= 0
    right = model(features, usable, weights).argmax(1) == labels
    return right[labelled].double().mean().item()
