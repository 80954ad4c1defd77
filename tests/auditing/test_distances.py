import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from lrptrain.auditing.distances import (
    as_distribution,
    jensen_shannon,
    kullback_leibler,
    total_variation,
)


def distributions(seed):
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(7, 0.3), size=5))


def test_distances_are_those_of_scipy():
    p, q = distributions(0), distributions(1)
    torch.testing.assert_close(jensen_shannon(p, q), torch.from_numpy(jensenshannon(p, q, axis=1) ** 2))
    torch.testing.assert_close(kullback_leibler(p, q), torch.from_numpy(entropy(p, q, axis=1)))
    torch.testing.assert_close(total_variation(p, q), (p - q).clamp(min=0).sum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_and_equal_distributions(dtype):
    p = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [1.0, 1e-30, 0.0]], dtype=dtype)
    q = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.0, 1.0, 0.0]], dtype=dtype)
    expected = torch.tensor([math.log(2), 0, 0, math.log(2)], dtype=dtype)
    torch.testing.assert_close(jensen_shannon(p, q), expected, rtol=1e-6, atol=0)
    assert (jensen_shannon(p, q) <= math.log(2)).all()
    torch.testing.assert_close(total_variation(p, q), torch.tensor([1.0, 0, 0, 1], dtype=dtype))
    assert (kullback_leibler(q, q) == 0).all()


def test_close_distributions_are_told_apart_in_float32():
    p = torch.full((1, 100), 0.01)
    q = p * torch.where(torch.arange(100) % 2 == 0, 1.002, 0.998)
    exact = torch.from_numpy(jensenshannon(p.double(), q.double(), axis=1) ** 2)
    torch.testing.assert_close(jensen_shannon(p, q).double(), exact, rtol=0.05, atol=0)


def test_gradients_are_finite_at_zeros_and_right_elsewhere():
    p = torch.tensor([[0.0, 0.4, 0.6]], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    for distance in (jensen_shannon, total_variation):
        gradients = torch.autograd.grad(distance(p, q).sum(), (p, q))
        assert all(gradient.isfinite().all() for gradient in gradients)
    inside = [(0.5 * distributions(seed) + 0.5 / 7).requires_grad_() for seed in (2, 3)]
    assert torch.autograd.gradcheck(jensen_shannon, inside)
    assert torch.autograd.gradcheck(kullback_leibler, inside)


def test_a_map_becomes_a_distribution_over_the_usable_tokens():
    scores = torch.tensor([[1.0, -2.0, 3.0, 9.0], [-1.0, -1.0, 0.0, 5.0], [1.0, 1.0, 1.0, 1.0]], requires_grad=True)
    usable = torch.tensor([[True, True, True, False], [True, True, False, False], [False] * 4])
    found = as_distribution(scores, usable)
    expected = torch.tensor([[0.25, 0, 0.75, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found[:, 0].sum(), scores)
    torch.testing.assert_close(gradient[0], torch.tensor([3 / 16, 0, -1 / 16, 0]))
    assert (gradient[1:] == 0).all()
