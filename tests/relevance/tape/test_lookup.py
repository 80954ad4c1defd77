"""A text is found among what a model looks up, in whatever order; compared with the plain order."""

import itertools
from collections.abc import Callable

import pytest
import torch
from model_zoo import randomised
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain

IDS = torch.tensor([[2, 7, 5, 9], [2, 8, 9, 3]])
METHODS = ("attnlrp", "input_x_gradient", "integrated_gradients", "rollout", "generic_attention")


class Reader(nn.Module):
    """One attention block on words that `look_up(embedding, ids)` gives as `[batch, tokens, width]`."""

    def __init__(self, look_up: Callable[[nn.Embedding, Tensor], Tensor]):
        super().__init__()
        self.words = nn.Embedding(12, 8)
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 3)
        self.look_up = look_up
        randomised(self)

    def forward(self, input_ids: Tensor) -> Tensor:
        tokens = self.look_up(self.words, input_ids)
        q, k, v = self.qkv(tokens).chunk(3, -1)
        return self.head((tokens + F.scaled_dot_product_attention(q, k, v)).tanh().mean(1))


def transposed(words: nn.Embedding, ids: Tensor) -> Tensor:
    return words(ids.t().contiguous()).transpose(0, 1)


def padded(words: nn.Embedding, ids: Tensor) -> Tensor:
    return words(F.pad(ids, (0, 3), value=1))[:, : ids.shape[1]]


def twice(words: nn.Embedding, ids: Tensor) -> Tensor:
    start = F.pad(ids[:, :-1], (1, 0), value=2)
    return words(ids) + 0 * words(start)


@pytest.mark.parametrize(
    ("look_up", "method"),
    [
        *itertools.product([transposed, padded], METHODS),
        *itertools.product([twice], ("attnlrp", "input_x_gradient", "integrated_gradients")),
    ],
)
def test_maps_are_those_of_the_plain_order(look_up, method):
    expected, found = (
        lrptrain.attribute(Reader(each), IDS, 1, method) for each in (lambda words, ids: words(ids), look_up)
    )
    assert torch.allclose(found.scores, expected.scores, rtol=0, atol=1e-12)
    assert found.scores.shape == IDS.shape


def test_several_texts_of_a_sample_are_looked_up_as_samples_of_their_own():
    def flattened(words: nn.Embedding, ids: Tensor) -> Tensor:
        return words(ids.flatten(0, 1)).unflatten(0, ids.shape[:2]).flatten(1, 2)

    choices = IDS.view(2, 2, 2)
    found = lrptrain.attribute(Reader(flattened), choices, 1, "attnlrp")
    expected = lrptrain.attribute(Reader(lambda words, ids: words(ids)), IDS, 1, "attnlrp")
    assert torch.allclose(found.scores.flatten(1), expected.scores, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [4, 5])
def test_integrated_gradients_change_what_a_decoder_looks_up_as_well(tokens):
    def decoder(words: nn.Embedding, ids: Tensor) -> Tensor:
        start = torch.cat([torch.full_like(ids[:, :1], 2), ids[:, :-1]], 1)
        return words(ids) + words(start).flip(1)

    model = Reader(decoder)
    ids = IDS if tokens == 4 else torch.cat([IDS, IDS[:, :1]], 1)
    found = lrptrain.attribute(model, ids, 1, "integrated_gradients", steps=16)
    without = Reader(lambda words, ids: 0 * words(ids) + _only_the_start(words, ids))
    without.load_state_dict(model.state_dict())
    with torch.no_grad():
        fall = model(ids)[:, 1] - without(ids)[:, 1]
    assert torch.allclose(found.scores.sum(1), fall, rtol=0, atol=1e-6)  # what 16 nodes leave


def _only_the_start(words: nn.Embedding, ids: Tensor) -> Tensor:
    start = words(torch.full_like(ids[:, :1], 2))
    return torch.cat([torch.zeros_like(start).expand(-1, ids.shape[1] - 1, -1), start], 1)
