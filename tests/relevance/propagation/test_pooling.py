"""Pooling: averages equal the plain mean, a maximum gives all to the winner."""

import pytest
import torch
from small_models import Block, Small, patches, same
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain

METHODS = ("transformer_attribution", "rollout", "lrp", "partial_lrp", "generic_attention")


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.adaptive_avg_pool1d(x.transpose(1, 2), 1).transpose(1, 2),
        lambda x: F.avg_pool1d(x.transpose(1, 2), 16).transpose(1, 2),
        lambda x: F.adaptive_avg_pool2d(x.transpose(1, 2).unflatten(2, (4, 4)), 1).flatten(2).transpose(1, 2),
    ],
)
def test_average_pooling_of_all_tokens_equals_their_mean(pool):
    same(Small(after=Block(pool)), Small(after=Block(lambda x: x.mean(1, keepdim=True))), patches(), METHODS)


MAXIMA = {
    "amax": lambda x: x.amax(1, keepdim=True),
    "max": lambda x: x.max(1, keepdim=True).values,
    "max_pool1d": lambda x: F.max_pool1d(x.transpose(1, 2), 16).transpose(1, 2),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x.transpose(1, 2), 1).transpose(1, 2),
    "maximum": lambda x: torch.maximum(*(t.amax(1, keepdim=True) for t in x.chunk(2, 1))),
}


def gathered(x: Tensor) -> Tensor:
    return x.gather(1, x.argmax(1, keepdim=True))


@pytest.mark.parametrize("name", MAXIMA)
def test_a_maximum_equals_the_entries_that_it_copies(name):
    same(Small(after=Block(MAXIMA[name])), Small(after=Block(gathered)), patches(), METHODS)


class Convolutional(nn.Module):
    """Pooling on a map of positive features, without attention."""

    def __init__(self, pool: nn.Module):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.pool, self.head = nn.Conv2d(3, 8, 2, 2), pool, nn.Linear(8, 4)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(F.softplus(self.conv(x))).mean((2, 3)))


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveMaxPool2d(2), nn.AdaptiveAvgPool2d(3)])
def test_pooling_conserves_relevance_and_keeps_samples_apart(pool):
    model, inputs = Convolutional(pool), patches()
    whole = lrptrain.attribute(model, inputs, 1, "lrp")
    assert torch.allclose(whole.scores.sum(1), torch.ones(3).double(), atol=1e-9)
    for i in range(3):
        assert torch.allclose(whole.scores[i], lrptrain.attribute(model, inputs[i : i + 1], 1, "lrp").scores[0])
