"""The z+ rule in place equals the plain one, entry by entry."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.fast import zplus as module
from lrptrain.relevance.fast.zplus import zplus
from lrptrain.relevance.propagation import rules


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def backwards(s: Tensor, weight: Tensor) -> Tensor:
    return s @ weight


@pytest.mark.parametrize("bias", [None, random(4, seed=3)])
@pytest.mark.parametrize("rows", [(3,), (2, 7), (2, 600)])
def test_zplus(rows, bias):
    x, weight, relevance = random(*rows, 5), random(4, 5, seed=1), random(*rows, 4, seed=2)
    expected = rules.zplus(relevance, x, weight, F.linear, backwards)
    found = zplus(relevance, x, weight, F.linear(x, weight, bias), bias)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("rows", [(3,), (2, 600)])
def test_zplus_of_which_the_bias_takes_its_share(rows):
    x, weight, relevance, bias = random(*rows, 5), random(4, 5, seed=1), random(*rows, 4, seed=2), random(4, seed=3)
    expected = rules.alpha_beta(relevance, x, weight, 1.0, 0.0, F.linear, backwards, bias)
    found = zplus(relevance, x, weight, F.linear(x, weight, bias), bias, takes=True)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


def test_zplus_where_most_rows_have_no_relevance():
    x, weight, relevance = random(3, 6, 5), random(4, 5, seed=1), torch.zeros(3, 6, 4, dtype=torch.float64)
    relevance[:, 0] = random(3, 4, seed=2)
    expected = rules.zplus(relevance, x, weight, F.linear, backwards)
    found = zplus(relevance, x, weight, F.linear(x, weight), None)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    assert (found[:, 1:] == 0).all()


def plain(relevance: Tensor, x: Tensor, weight: Tensor, *_: Tensor | None) -> Tensor:
    return rules.zplus(relevance, x, weight, F.linear, backwards)


@pytest.mark.parametrize("rule", [zplus, plain])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zplus_of_dead_units_and_zeros(dtype, rule):
    """All contributions negative: xW + |x||W| is 0 in algebra and rounding in floats; relevance must not explode."""
    x = random(64, 50, dtype=dtype).abs()
    x[0] = 0
    weight = torch.cat([-random(1, 50, seed=1).abs(), random(3, 50, seed=2)]).to(dtype)
    found = rule(torch.ones(64, 4, dtype=dtype), x, weight, F.linear(x, weight), None)
    expected = torch.full((64,), 3.0, dtype=dtype)  # the dead unit's relevance goes nowhere
    expected[0] = 0
    torch.testing.assert_close(found.sum(1), expected)


@pytest.mark.parametrize("takes", [False, True])
def test_zplus_of_one_row_in_a_whole_cache_without_a_positive_contribution(takes):
    x = random(512, 3).abs() + 0.1
    weight = random(600, 3, seed=1).abs() + 0.1
    weight[:, 2] = -0.01
    x[-1] = torch.tensor([0.0, 0.0, 1.0])
    bias = random(600, seed=3)
    relevance = random(512, 600, seed=2)
    assert relevance.numel() > 2 * module._ENTRIES  # more than one part is looked at
    expected = rules.alpha_beta(relevance, x, weight, 1.0, 0.0, F.linear, backwards, bias if takes else None)
    found = zplus(relevance, x, weight, F.linear(x, weight, bias), bias, takes)
    assert (found[-1] == 0).all()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_arguments_are_not_overwritten():
    x, weight, relevance, z = random(3, 5), random(4, 5, seed=1), random(3, 4, seed=2), random(3, 4, seed=4)
    before = [tensor.clone() for tensor in (x, weight, relevance, z)]
    zplus(relevance, x, weight, z, random(4))
    assert all(torch.equal(one, other) for one, other in zip(before, (x, weight, relevance, z), strict=True))
