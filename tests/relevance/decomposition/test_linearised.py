"""The frozen slope of elementwise functions is integrated gradients in closed form."""

from collections.abc import Callable

import pytest
import torch
from decomposed import assert_close, integrated
from torch.nn import functional as F

from lrptrain.relevance.decomposition.linearised import secant

FUNCTIONS: dict[str, Callable] = {
    "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": F.relu, "elu": F.elu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_secant_is_integrated_gradients(name):
    g, u = FUNCTIONS[name], torch.tensor([-5.0, -1.3, -0.1, -1e-3, 1e-3, 0.2, 1.0, 4.0], dtype=torch.float64)
    h = torch.randn(8, dtype=torch.float64)
    assert_close(h * secant(g, u, g(u)), integrated(h, u, g))


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"relu"}))
def test_the_secant_is_continuous_at_0(name):
    g, u = FUNCTIONS[name], torch.tensor([0.0, -1e-300, 1e-300, -1e-17, -1e-12, 1e-12, -1e-9], dtype=torch.float64)
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    limit = torch.autograd.grad(g(x).sum(), x)[0]
    torch.testing.assert_close(secant(g, u, g(u)), limit.expand(7), rtol=1e-7, atol=0)


def test_the_secant_of_a_dead_unit_is_0():
    u = torch.tensor([-1.0, -1e-300, 0.0], dtype=torch.float64)
    assert secant(F.relu, u, F.relu(u)).tolist() == [0, 0, 0]


def test_no_slope_is_nan_in_float32():
    u = torch.tensor([0.0, -1e-40, 1e-38, -1e-30, 1e-20, 1e37])
    assert secant(F.gelu, u, F.gelu(u)).isfinite().all()
