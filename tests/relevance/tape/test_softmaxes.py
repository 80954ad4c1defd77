"""Softmaxes that a model writes out equal the fused one, by every method; what only looks like one is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import Block, Small, patches
from test_models import OPTIONS
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain
from lrptrain.relevance.passes.recording import run_on_tape
from lrptrain.relevance.tape.nodes import Node
from lrptrain.relevance.tape.softmaxes import join_softmaxes

HIDDEN = torch.arange(16) % 5 == 4  # keys that nobody attends to
BY_RULES = ("attnlrp", "epsilon_lrp", "gamma_lrp", "lrp")
LAST: dict[str, Any] = {"dim": -1, "keepdim": True}


class Attending(nn.Module):
    """A pre-LN attention block of which the softmax is a function."""

    def __init__(self, softmax: Callable[[Tensor], Tensor]):
        super().__init__()
        self.embed, self.qkv = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24)
        self.norm, self.out, self.head = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.second_norm, self.widen, self.narrow = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)
        self.softmax = Block(softmax)
        self.position = nn.Parameter(torch.zeros(16, 8))
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        q, k, v = self.qkv(self.norm(tokens)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        attended = self.softmax(q @ k.mT / 2) @ v
        tokens = tokens + self.out(attended.transpose(1, 2).flatten(2))
        tokens = tokens + self.narrow(F.gelu(self.widen(self.second_norm(tokens))))
        return self.head(tokens.mean(1))


def plain(x: Tensor) -> Tensor:
    return x.softmax(-1)


def without_hidden(x: Tensor) -> Tensor:
    return x.masked_fill(HIDDEN, -torch.inf).softmax(-1)


def by_exponential(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(-1, keepdim=True)


def less_maximum(x: Tensor) -> Tensor:
    weights = torch.exp(x - x.max(-1, keepdim=True)[0])
    return weights / weights.sum(**LAST)


def in_place(x: Tensor) -> Tensor:
    weights = x.clone()
    weights -= x.amax(-1).detach().unsqueeze(-1)
    weights.exp_()
    return weights / weights.sum(-1)[..., None].expand_as(weights)


def with_epsilon(x: Tensor) -> Tensor:
    weights = torch.exp(x - x.max())
    return weights / (weights.sum(**LAST) + 1e-300)


def with_floor(x: Tensor) -> Tensor:
    weights = torch.exp(x)
    return weights * weights.sum(**LAST).clamp_min(1e-9).reciprocal()


def masked(x: Tensor) -> Tensor:
    weights = torch.exp(x - x.amax(**LAST)) * (~HIDDEN).to(x.dtype)
    return weights / weights.sum(**LAST)


def masked_once_more(x: Tensor) -> Tensor:
    weights = x.softmax(-1).masked_fill(HIDDEN, 0.0)
    return weights / weights.sum(**LAST)


# Written out, and what it equals.
SOFTMAXES: dict[str, tuple[Callable, Callable]] = {
    "exp": (by_exponential, plain),
    "exp, made once": (lambda x: (e := x.exp()) / e.sum(-1, keepdim=True), plain),
    "less its maximum": (less_maximum, plain),
    "in place": (in_place, plain),
    "epsilon": (with_epsilon, plain),
    "floor, reciprocal": (with_floor, plain),
    "normalised": (lambda x: F.normalize(x.exp(), p=1.0, dim=-1), plain),
    "log_softmax": (lambda x: x.log_softmax(-1).exp(), plain),
    "logsumexp": (lambda x: torch.exp(x - x.logsumexp(-1, keepdim=True)), plain),
    "softmax less its maximum": (lambda x: F.softmax(x - x.amax(-1, keepdim=True), -1), plain),
    "masked by a product": (masked, without_hidden),
    "masked by -inf": (lambda x: less_maximum(x.masked_fill(HIDDEN, -torch.inf)), without_hidden),
    "softmax, masked, divided by its sum": (masked_once_more, without_hidden),
}


def nodes(function: Callable[[Tensor], Tensor]) -> list[Node]:
    x = torch.randn(3, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tape, output = run_on_tape(Block(function), x)
    value = tape.value_of(output)
    assert value is not None
    tape.keep_only(value)
    join_softmaxes(tape)
    return tape.nodes


def scores(softmax: Callable, method: str) -> Tensor:
    return lrptrain.attribute(Attending(softmax), patches(), [0, 1, 2], method, **OPTIONS.get(method, {})).scores


# Of post-LN blocks only.
METHODS = [method for method in lrptrain.methods() if method not in ("atb_ff_res_ln_norm", "attn_res_ln_norm")]
PAIRS = [(name, method) for name in SOFTMAXES for method in ("attnlrp", "lrp", "generic_attention")]
PAIRS += [("masked by -inf", method) for method in METHODS]


@pytest.mark.parametrize(("name", "method"), dict.fromkeys(PAIRS))
def test_written_out_softmaxes_equal_the_fused_one(name, method):
    written, fused = SOFTMAXES[name]
    assert relative_error(scores(written, method), scores(fused, method)).max() < 1e-9


@pytest.mark.parametrize("name", SOFTMAXES)
def test_a_written_out_softmax_is_one_operation_that_can_be_repeated(name):
    if "mask" not in name:
        (node,) = nodes(SOFTMAXES[name][0])
        other = torch.randn(2, 4, 8, dtype=torch.float64)
        assert node.name == "softmax"
        torch.testing.assert_close(node.function(other, -1), other.softmax(-1), rtol=1e-14, atol=0.0)


def test_along_another_axis():
    (node,) = nodes(lambda x: (e := x.exp()) / e.sum(1, keepdim=True))
    assert (node.name, node.argument(1, "dim")) == ("softmax", 1)


@pytest.mark.parametrize("method", ["attnlrp", "lrp", "generic_attention"])
def test_other_readers_keep_the_exponential(method):
    def read_twice(x: Tensor) -> Tensor:
        weights = (x / 9).exp()
        return weights / weights.sum(**LAST) + 0.1 * weights

    fused = scores(lambda x: (x / 9).softmax(-1) + 0.1 * (x / 9).exp(), method)
    assert relative_error(scores(read_twice, method), fused).max() < 1e-9


def both_axes(x: Tensor) -> Tensor:
    weights = x.exp()
    return weights / weights.sum((-1, -2), keepdim=True)


def off_by_one(x: Tensor) -> Tensor:
    weights = x.exp()
    return weights / (1 + weights.sum(**LAST))


def masked_below(x: Tensor) -> Tensor:
    weights = x.exp()
    return weights / weights.masked_fill(HIDDEN, 0.0).sum(**LAST)


def misaligned(x: Tensor) -> Tensor:
    weights = x.exp()
    return weights / weights.sum(-1).unsqueeze(-2)


PLACES = torch.linspace(-1, 1, 256, dtype=torch.float64).view(16, 16).sin().softmax(-1)


def gated(x: Tensor, gate: float | Tensor = 0.25) -> Tensor:
    return x.softmax(-1) * (1 - gate) + PLACES * gate


def gated_and_divided(x: Tensor, gate: float | Tensor = 0.25) -> Tensor:
    """As ConViT does: a sum that is 1 whatever the scores are."""
    weights = gated(x, gate)
    return weights / weights.sum(-1).unsqueeze(-1)


def gated_by_key(x: Tensor) -> Tensor:
    return gated_and_divided(x, torch.linspace(0, 1, 16, dtype=x.dtype))


def gated_by_softmax_over_queries(x: Tensor) -> Tensor:
    weights = x.softmax(-2) + PLACES
    return weights / weights.sum(**LAST)


@pytest.mark.parametrize("method", [*BY_RULES, "input_x_gradient", "generic_attention", "rollout"])
def test_a_sum_of_softmaxes_is_a_constant(method):
    expected = scores(gated, method)
    assert relative_error(scores(gated_and_divided, method), expected).max() < 1e-9
    by_head = torch.tensor([0.25, 0.25], dtype=torch.float64).view(2, 1, 1)
    assert relative_error(scores(lambda x: gated_and_divided(x, by_head), method), expected).max() < 1e-9


REFUSED = [both_axes, off_by_one, masked_below, misaligned, gated_by_key, gated_by_softmax_over_queries]


@pytest.mark.parametrize("method", BY_RULES)
@pytest.mark.parametrize("function", REFUSED)
def test_other_quotients_of_exponentials_are_refused(function, method):
    with pytest.raises(lrptrain.UnsupportedOperationError, match="divides exponentials by a sum of them"):
        scores(function, method)


class DividedLater(Attending):
    """Values are summed with weights that are divided by their sum only then."""

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).chunk(3, -1)
        weights = (q @ k.mT).exp()
        return self.head((weights @ v / weights.sum(**LAST)).mean(1))


@pytest.mark.parametrize("method", BY_RULES)
def test_sums_weighted_by_exponentials_are_refused(method):
    with pytest.raises(lrptrain.UnsupportedOperationError, match="divides exponentials by a sum of them"):
        lrptrain.attribute(DividedLater(plain), patches(), 0, method)


class Linear(Attending):
    """Linear attention, of which the denominator is a sum of products."""

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).chunk(3, -1)
        q, k = (F.elu(part) + 1 for part in (q, k))
        return self.head((q @ (k.mT @ v) / (q @ k.sum(1, keepdim=True).mT)).mean(1))


def test_linear_attention_keeps_its_denominator_fixed():
    """AttnLRP of the same model, of which the denominator is a constant, halves the same products."""

    class Fixed(Linear):
        def forward(self, x: Tensor) -> Tensor:
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            q, k, v = self.qkv(tokens).chunk(3, -1)
            q, k = (F.elu(part) + 1 for part in (q, k))
            return self.head((q @ (k.mT @ v) / (q @ k.sum(1, keepdim=True).mT).detach()).mean(1))

    model, x = Linear(plain), patches()
    found = lrptrain.attribute(model, x, 1, "attnlrp", form="explicit").scores
    assert relative_error(found, lrptrain.attribute(Fixed(plain), x, 1, "attnlrp").scores).max() < 1e-9


@pytest.mark.parametrize("form", ["gradient", "explicit"])
def test_log_softmax_is_linearised(form):
    """Input times gradient, where everything else is linear."""

    class Logarithms(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
            randomised(self)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x).flatten(2).mean(2)).log_softmax(-1)

    model, x = Logarithms(), patches()
    found = lrptrain.attribute(model, x, [0, 1, 2], "attnlrp", form=form)
    expected = lrptrain.attribute(model, x, [0, 1, 2], "input_x_gradient")
    assert relative_error(found.scores, expected.scores).max() < 1e-9


@pytest.mark.parametrize("method", ["epsilon_lrp", "lrp"])
def test_log_softmax_is_refused_where_it_has_no_rule(method):
    with pytest.raises(lrptrain.UnsupportedOperationError, match="log_softmax in module 'between'"):
        lrptrain.attribute(Small(Block(lambda x: x.log_softmax(-1))), patches(), 0, method)
