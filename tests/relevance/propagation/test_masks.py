"""Masked tokens take no part: the map equals that of the same model without them, whichever way the mask is made."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import patches
from torch import Tensor, nn

import lrptrain

KEPT = 10
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "attnlrp": ("attnlrp", {}),
    "explicit": ("attnlrp", {"form": "explicit"}),
    "gamma_lrp": ("gamma_lrp", {}),
    "epsilon_lrp": ("epsilon_lrp", {}),
    "lrp": ("lrp", {}),
    "chefer": ("lrp", {"composite": "chefer"}),
}


class Masked(nn.Module):
    """16 patches, of which the first ten count; `attend` leaves the others out, or masks them."""

    def __init__(self, attend: Callable[["Masked", Tensor, Tensor], Tensor], scale: float = 1.0):
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.attend = attend
        randomised(self)
        self.head.weight.data.mul_(scale)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        blocked = torch.zeros(len(x), 16, dtype=torch.bool)
        blocked[:, KEPT:] = True
        return self.head(self.attend(self, tokens, blocked)[:, :KEPT].mean(1))


def added(tokens: Tensor, blocked: Tensor, number: float) -> Tensor:
    return torch.zeros_like(blocked, dtype=tokens.dtype).masked_fill_(blocked, number)


def scores_of(tokens: Tensor) -> Tensor:
    return tokens @ tokens.mT / 8**0.5


def attended(tokens: Tensor, scores: Tensor) -> Tensor:
    return tokens + scores.softmax(-1) @ tokens


def masked_layer(number: float) -> Callable[[Masked, Tensor, Tensor], Tensor]:
    return lambda model, tokens, blocked: model.layer(tokens, src_key_padding_mask=added(tokens, blocked, number))


def masked_attention(**options: Any) -> Callable[[Masked, Tensor, Tensor], Tensor]:
    return lambda model, t, blocked: t + model.attention(t, t, t, key_padding_mask=blocked, **options)[0]


def alone(model: Masked, tokens: Tensor, blocked: Tensor) -> Tensor:
    return model.layer(tokens[:, :KEPT])


def alone_in_attention(model: Masked, tokens: Tensor, blocked: Tensor) -> Tensor:
    kept = tokens[:, :KEPT]
    return kept + model.attention(kept, kept, kept)[0]


def alone_by_hand(model: Masked, tokens: Tensor, blocked: Tensor) -> Tensor:
    return attended(tokens[:, :KEPT], scores_of(tokens[:, :KEPT]))


LOWEST = torch.finfo(torch.float64).min
CASES: dict[str, tuple[Callable[[Masked, Tensor, Tensor], Tensor], Callable[[Masked, Tensor, Tensor], Tensor]]] = {
    "a layer, bool": (lambda model, t, blocked: model.layer(t, src_key_padding_mask=blocked), alone),
    "a layer, -inf": (masked_layer(-torch.inf), alone),
    "a layer, lowest": (masked_layer(LOWEST), alone),
    "attention": (masked_attention(), alone_in_attention),
    "attention, all heads": (masked_attention(average_attn_weights=False), alone_in_attention),
    "attention, fused": (masked_attention(need_weights=False), alone_in_attention),
    "added": (lambda _, t, b: attended(t, scores_of(t) + added(t, b, -torch.inf)[:, None]), alone_by_hand),
    "added twice": (
        lambda _, t, b: attended(t, scores_of(t) + added(t, b, LOWEST)[:, None] + added(t, b, LOWEST)[:, None]),
        alone_by_hand,
    ),
    "filled, then scaled": (
        lambda _, t, b: attended(t, (t @ t.mT).masked_fill(b[:, None], -torch.inf) / 8**0.5),
        alone_by_hand,
    ),
    "filled, then biased": (
        lambda _, t, b: attended(t, scores_of(t).masked_fill(b[:, None], -torch.inf) + t.mean(-1)[:, None]),
        lambda _, t, b: attended(t[:, :KEPT], scores_of(t[:, :KEPT]) + t[:, :KEPT].mean(-1)[:, None]),
    ),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_a_masked_token_is_as_one_that_is_not_there(case, method):
    masked, without = CASES[case]
    name, options = METHODS[method]
    found = lrptrain.attribute(Masked(masked), patches(), 1, name, **options).input
    expected = lrptrain.attribute(Masked(without), patches(), 1, name, **options).input
    # Pooling takes the same ten tokens in both models.
    assert relative_error(found, expected).max() < 1e-9


def rows_without_keys(number: float) -> Callable[[Masked, Tensor, Tensor], Tensor]:
    """Queries 5 and later see nothing; a softmax over -inf alone is NaN, which the model replaces."""

    def attend(model: Masked, tokens: Tensor, blocked: Tensor) -> Tensor:
        rows = torch.full((16, 1), number, dtype=tokens.dtype)
        rows[:5] = 0
        return tokens + (scores_of(tokens) + rows).softmax(-1).nan_to_num() @ tokens

    return attend


@pytest.mark.parametrize("method", METHODS)
def test_queries_without_a_key_attend_to_nothing(method):
    def filled(model: Masked, tokens: Tensor, blocked: Tensor) -> Tensor:
        probabilities = scores_of(tokens).softmax(-1)
        return tokens + probabilities.masked_fill((torch.arange(16) >= 5)[:, None], 0.0) @ tokens

    name, options = METHODS[method]
    models = (Masked(rows_without_keys(-torch.inf)), Masked(filled))
    maps = [lrptrain.attribute(model, patches(), 1, name, **options).scores for model in models]
    assert relative_error(*maps).max() < 1e-9


def test_relevance_times_the_lowest_number_does_not_overflow():
    # Every key of a query is as low as numbers can be: its attention is uniform, and relevance reaches its scores.
    model = Masked(rows_without_keys(torch.finfo(torch.float32).min), scale=1e4).float()
    x = patches().float()
    explicit, gradient = (lrptrain.attribute(model, x, 1, "attnlrp", form=form) for form in ("explicit", "gradient"))
    assert relative_error(explicit.scores, gradient.scores).max() < 1e-2  # float32
