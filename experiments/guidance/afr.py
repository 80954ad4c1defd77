"""The last layer anew, on samples weighted by how wrong the model is of them: no annotation, no group.

Qiu et al. 2023, "Simple and fast group robustness by automatic feature reweighting" (AFR).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.guidance.benchmarks import Benchmark, class_probability, model_columns, worst
from experiments.guidance.fitting import Batch
from lrptrain.repairing.last_layer import find_last_layer, read_features

SETTINGS = tuple(product((2.0, 8.0, 20.0), (0.001, 0.01, 0.1)))
"""How sharply a sample's weight falls with the probability of its class, and the penalty on leaving the old layer."""
STEPS = 200


@dataclass(frozen=True)
class Layer:
    """A linear layer."""

    weight: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return features @ self.weight.T + self.bias


def retrain(net: nn.Module, columns: Batch, benchmark: Benchmark) -> dict[str, float]:
    """Train the last layer of a network anew, in place; what was chosen.

    The setting is that of the best worst class on halves of the samples that the layer was not trained on.
    """
    batches = model_columns(columns)
    found = find_last_layer(net, batches[0])
    features = torch.from_numpy(read_features(net, found, batches))
    label = columns["label"]
    probability = class_probability(benchmark.logits(net, columns), label)
    old = Layer(found.module.weight.detach().double(), found.module.bias.detach().double())
    half = torch.arange(len(label)) % 2 == 0

    def judged(setting: tuple[float, float]) -> float:
        right = torch.zeros(len(label), dtype=torch.float64)
        for rows in (half, ~half):
            layer = fitted(
                old, features[rows], label[rows], weights(probability[rows], label[rows], setting[0]), setting[1]
            )
            right[~rows] = (layer(features[~rows]).argmax(1) == label[~rows]).double()
        return worst(right, label)

    sharpness, penalty = best = max(SETTINGS, key=judged)
    layer = fitted(old, features, label, weights(probability, label, sharpness), penalty)
    with torch.no_grad():
        found.module.weight.copy_(layer.weight)
        found.module.bias.copy_(layer.bias)
    return {"sharpness": sharpness, "penalty": penalty, "worst class, held out": judged(best)}


def weights(probability: Tensor, label: Tensor, sharpness: float) -> Tensor:
    """Of each sample, with a sum of 1: the less the more probable its class, and the less the larger that is."""
    raw = torch.exp(-sharpness * probability) / torch.bincount(label)[label]
    return raw / raw.sum()


def fitted(old: Layer, features: Tensor, label: Tensor, weight: Tensor, penalty: float) -> Layer:
    """The layer of least weighted cross-entropy, drawn towards the old one."""
    parameters = [each.clone().requires_grad_() for each in (old.weight, old.bias)]
    optimizer = torch.optim.LBFGS(parameters, max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        layer = Layer(*parameters)
        losses = F.cross_entropy(layer(features), label, reduction="none")
        return (weight * losses).sum() + penalty * _distance(parameters, (old.weight, old.bias))

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
    return Layer(*(each.detach() for each in parameters))


def _distance(first: Iterable[Tensor], second: Iterable[Tensor]) -> Tensor:
    squares = [(one - other).square().sum() for one, other in zip(first, second, strict=True)]
    return torch.stack(squares).sum()
