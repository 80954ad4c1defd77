"""Rules against their textbook formulas, entry by entry; those that users compose are in `test_named_rules.py`."""

from collections.abc import Callable

import pytest
import torch
from small_models import random
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional as F

from lrptrain.relevance.propagation import rules


def backwards(s: Tensor, weight: Tensor) -> Tensor:
    return s @ weight


@pytest.fixture
def layer() -> tuple[Tensor, Tensor, Tensor]:
    """Input [3, 5], weight [4, 5], relevance [3, 4]."""
    return random(3, 5), random(4, 5, seed=1), random(3, 4, seed=2)


def by_contributions(relevance: Tensor, contributions: Tensor) -> Tensor:
    """R_i = sum_o c_oi / (sum_i c_oi) R_o for contributions [batch, out, in]; nothing where the sum is 0."""
    result = torch.zeros(contributions.shape[0], contributions.shape[2], dtype=relevance.dtype)
    for b, o, i in torch.cartesian_prod(*(torch.arange(n) for n in contributions.shape)).tolist():
        total = contributions[b, o].sum()
        if total != 0:
            result[b, i] += contributions[b, o, i] / total * relevance[b, o]
    return result


def test_alpha1_beta0(layer):
    """Each of x+W+ and x-W- is divided by its own sum, so that relevance doubles where both exist."""
    x, weight, relevance = layer
    found = rules.alpha1_beta0(relevance, x, weight, F.linear, backwards)
    up = by_contributions(relevance, x.clamp(min=0)[:, None] * weight.clamp(min=0))
    down = by_contributions(relevance, x.clamp(max=0)[:, None] * weight.clamp(max=0))
    torch.testing.assert_close(found, up + down)


def test_proportional():
    u, v, relevance = random(3, 4), random(3, 4, seed=1), random(3, 4, seed=2)
    first, second = rules.proportional(relevance, (u, v))
    torch.testing.assert_close(first, relevance * u / (u + v))
    torch.testing.assert_close(first + second, relevance)
    cancelled = rules.proportional(relevance, (u, -u))
    assert all((part == 0).all() for part in cancelled)


def test_rescale():
    relevance, parts = random(3, 4), (random(3, 4, seed=1), random(3, 4, seed=2))
    found = rules.rescale(relevance, parts, lambda x: x.sum(1, keepdim=True))
    for b in range(3):
        sums = [part[b].sum() for part in parts]
        absolute = abs(sums[0]) + abs(sums[1])
        for part, total, result in zip(parts, sums, found, strict=True):
            torch.testing.assert_close(result[b], part[b] * abs(total) / absolute * relevance[b].sum() / total)
    torch.testing.assert_close(sum(found).sum(1), relevance.sum(1))  # type: ignore[union-attr]


def test_safe_divide():
    small = torch.tensor([0.0, -0.0, 1e-45, 1e-38, 2.0, -4.0])
    assert rules.safe_divide(torch.ones(6), small).tolist() == [0, 0, 0, 0, 0.5, -0.25]
    assert rules.safe_divide(torch.full((6,), 1e30), small).isfinite().all()


def total_of_rows(x: Tensor) -> Tensor:
    return x.sum(1, keepdim=True)


RULES: dict[str, Callable] = {
    "zplus": lambda r, x, w: rules.zplus(r, x, w, F.linear, backwards),
    "alpha1_beta0": lambda r, x, w: rules.alpha1_beta0(r, x, w, F.linear, backwards),
    "epsilon": lambda r, x, w: rules.epsilon(r, x, w, F.linear(x, w), 0.1, backwards),
    "gamma": lambda r, x, w: rules.gamma(r, x, w, F.linear(x, w), 0.3, F.linear, backwards),
    "zbox": lambda r, x, w: rules.zbox(r, x, x.amin(), x.amax(), w, F.linear, backwards),
    "halves": lambda r, x, w: rules.halves(r, x @ w.mT, x, w, lambda s: s @ w, lambda s: s.mT @ x),
    "proportional": lambda r, x, w: rules.proportional(r, (F.linear(x, w), r + 3)),
    "rescale": lambda r, x, w: rules.rescale(r, (F.linear(x, w), r), total_of_rows),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_can_be_trained_through(name, layer):
    x, weight, relevance = (tensor.requires_grad_() for tensor in layer)
    assert gradcheck(RULES[name], (relevance, x, weight))


def test_a_stabiliser_is_not_rounded_to_float32():
    y = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    assert torch.equal(rules.stabilised(y, 0.1) - y, torch.tensor([-1.1 + 1.0, 0.1, 2.1 - 2.0], dtype=torch.float64))
