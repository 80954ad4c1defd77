"""GELU with a second derivative in one pass, against finite differences and torch's own."""

import pytest
import torch
from torch.nn import functional as F

from lrptrain.relevance.tape.double_backward import gelu as module
from lrptrain.relevance.tape.double_backward.gelu import gelu


@pytest.fixture(autouse=True)
def few_entries_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "_ENTRIES_AT_A_TIME", 7)


def numbers() -> torch.Tensor:
    return (3 * torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).requires_grad_()


def test_first_and_second_derivatives_are_those_of_finite_differences():
    assert torch.autograd.gradcheck(gelu, numbers())
    assert torch.autograd.gradgradcheck(gelu, numbers())


def test_a_third_derivative_is_that_of_torch():
    def third(function):
        x = numbers()
        derivative = function(x)
        for _ in range(3):
            (derivative,) = torch.autograd.grad(derivative.sum(), x, create_graph=True)
        return derivative

    torch.testing.assert_close(third(gelu), third(F.gelu), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(5, 4), (20,), (0,), (2, 2, 5)])
def test_every_shape_and_order_in_memory_gives_what_torch_gives(shape):
    def second(function):
        x = numbers().detach()[: shape[0] and 4].mT.reshape(-1)[: torch.Size(shape).numel()].view(shape)
        x = x.mT.contiguous().mT if x.ndim == 2 else x
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(function(x).pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.pow(2).sum(), x)[0]

    torch.testing.assert_close(second(gelu), second(F.gelu), rtol=1e-12, atol=1e-14)
