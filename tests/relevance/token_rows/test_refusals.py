"""What no row of tokens can be followed through is refused by name, and what an operation reads is not guessed."""

import pytest
import torch
from torch import Tensor, nn

import lrptrain
from lrptrain import UnsupportedMethodError
from tests.relevance.model_zoo import randomised


class Staged(nn.Module):
    """Attention in windows of four tokens, and something behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.attention = nn.Linear(8, 24)
        self.other = nn.Linear(8, 8)
        self.tokens = nn.Linear(16, 16)
        self.head = nn.Linear(8, 3)

    def windows(self, x: Tensor) -> Tensor:
        query, key, value = self.attention(x).unflatten(1, (4, 4)).chunk(3, -1)
        return ((query @ key.mT).softmax(-1) @ value).flatten(1, 2)

    def behind(self, x: Tensor) -> Tensor:
        return x

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).mT
        return self.head(self.behind(x + self.windows(x)).mean(1))


class ChannelAttention(Staged):
    def behind(self, x: Tensor) -> Tensor:
        query, key, value = self.attention(x).mT.chunk(3, 1)
        return x + ((query @ key.mT).softmax(-1) @ value).mT


class LinearAttention(Staged):
    def behind(self, x: Tensor) -> Tensor:
        query, key, value = self.attention(x).relu().chunk(3, -1)
        return x + query @ (key.mT @ value)


class OtherTokens(Staged):
    def behind(self, x: Tensor) -> Tensor:
        return x * x.flip(1)


class WeighedTokens(Staged):
    def behind(self, x: Tensor) -> Tensor:
        return x * self.other(x)[..., :1].sigmoid()


class AddedUp(Staged):
    def behind(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


class NormalizedOverTokens(Staged):
    def behind(self, x: Tensor) -> Tensor:
        return x.softmax(1)


class Streams(Staged):
    """Two streams with attention after attention each, which are added at the end."""

    def behind(self, x: Tensor) -> Tensor:
        first = self.other(x)
        second = self.other(x.relu())
        for _ in range(2):
            first = first + self.windows(first)
            second = second + self.windows(second)
        return first + second


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (ChannelAttention, "attends over features, not over tokens"),
        (LinearAttention, "matmul in module .* is not known to read certain tokens"),
        (OtherTokens, "multiplies different tokens"),
        (WeighedTokens, "weighs tokens by activations"),
        (AddedUp, "cumsum"),
        (NormalizedOverTokens, "normalises over tokens"),
    ],
)
@pytest.mark.parametrize("method", ["rollout", "generic_attention"])
def test_what_is_no_reading_of_tokens_is_refused_by_name(model: type[Staged], why: str, method: str) -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    with pytest.raises(UnsupportedMethodError, match=why):
        lrptrain.attribute(randomised(model()), images, target=1, method=method)


def test_streams_with_attention_of_their_own_are_averaged_but_not_added() -> None:
    torch.manual_seed(0)
    model = randomised(Streams())
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    scores = lrptrain.attribute(model, images, target=1, method="rollout").scores
    # Every one of some 30 operations hands on what it gets, in sums of 16 numbers.
    assert (scores.sum(1) - 1).abs().max() < 1e-12
    with pytest.raises(UnsupportedMethodError, match="one of several streams"):
        lrptrain.attribute(model, images, target=1, method="generic_attention")


class TokensMixed(Staged):
    """A constant matrix mixes tokens, with one weight that is large."""

    def behind(self, x: Tensor) -> Tensor:
        return self.tokens(x.mT).mT


def test_a_linear_layer_over_tokens_is_read_by_its_weights() -> None:
    torch.manual_seed(0)
    model = TokensMixed()
    randomised(model)
    model.tokens.weight.data.zero_()
    model.tokens.weight.data[:, 5] = -2.0  # all tokens are made of the sixth, and of no other
    images = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    scores = lrptrain.attribute(model, images, target=1, method="rollout").scores[0]
    # The sixth token has half of the row, and its window of four the other.
    assert scores[:4].abs().max() == 0
    assert scores[8:].abs().max() == 0
    assert (scores[4:8].sum() - 1).abs() < 1e-12
    assert scores[5] > 0.5


def test_blocks_are_counted_from_both_ends() -> None:
    torch.manual_seed(0)
    model = randomised(Staged())
    images = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    with pytest.raises(ValueError, match="start_layer=1 is out of range for a model of 1 blocks"):
        lrptrain.attribute(model, images, target=1, method="rollout", start_layer=1)
    with pytest.raises(ValueError, match="block=-2 is out of range for a model of 1 blocks"):
        lrptrain.attribute(model, images, target=1, method="attention_x_gradient", block=-2)
    with pytest.raises(UnsupportedMethodError, match="normalize_rows=True is for attention over one sequence"):
        lrptrain.attribute(model, images, target=1, method="transformer_attribution", normalize_rows=True)


class TwoMaps(Staged):
    """One attention in two parts that are added up, each of half of the tokens, as Longformer computes it."""

    def windows(self, x: Tensor) -> Tensor:
        query, key, value = self.attention(x).unflatten(1, (4, 4)).chunk(3, -1)
        weights = (query @ key.mT).softmax(-1)
        return (weights[..., :2] @ value[..., :2, :] + weights[..., 2:] @ value[..., 2:, :]).flatten(1, 2)


class OneMap(Staged):
    """The same numbers in one product."""


def test_two_maps_that_are_added_up_are_one_map() -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    models = [randomised(model()) for model in (TwoMaps, OneMap)]
    two, one = (lrptrain.attribute(model, images, target=1, method="generic_attention").scores for model in models)
    assert (two - one).abs().max() <= 1e-12 * one.abs().max()
    assert (one - 1 / 16).abs().max() > 1e-4  # attention adds something
    # Averaged with the states, the two would count as two layers of attention.
    with pytest.raises(UnsupportedMethodError, match="a map whose rows do not sum to 1"):
        lrptrain.attribute(models[0], images, target=1, method="rollout")
    with pytest.raises(UnsupportedMethodError, match="adds other attention to that of the block"):
        lrptrain.attribute(models[0], images, target=1, method="raw_attention")
