"""GELU with a second derivative in one pass, against finite differences and torch's own."""

import pytest
import torch
from torch.nn import functional as F

from lrptrain.relevance.propagation.rules import safe_divide
from lrptrain.relevance.tape.double_backward import gelu as module
from lrptrain.relevance.tape.double_backward.gelu import by_slope, gelu


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


# -- Relevance per unit of activation ----------------------------------------------------------------------------------


def by_quotient(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return gradient * safe_divide(F.gelu(x), x)


def relevances() -> torch.Tensor:
    return torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def test_first_and_second_derivatives_of_the_slope_are_those_of_finite_differences():
    assert torch.autograd.gradcheck(by_slope, (relevances(), numbers()))
    assert torch.autograd.gradgradcheck(by_slope, (relevances(), numbers()))


def test_the_slope_is_the_quotient_also_in_its_third_derivative():
    def third(function):
        given = [relevances(), numbers()]
        result = function(*given)
        parts = [result]
        for _ in range(3):
            gradients = torch.autograd.grad(result.pow(2).sum(), given, create_graph=True)
            result = torch.cat([x.flatten() for x in gradients])
            parts.append(result)
        return parts

    for mine, expected in zip(third(by_slope), third(by_quotient), strict=True):
        # The derivative of a quotient is a difference of numbers that are as large as 1 / x.
        torch.testing.assert_close(mine, expected, rtol=1e-7, atol=1e-9)


def test_an_activation_of_0_passes_nothing_and_one_that_is_no_number_stays_none():
    x = torch.tensor([0.0, 1e-320, -1e-300, torch.nan], dtype=torch.float64, requires_grad=True)
    passed = by_slope(torch.ones(4, dtype=torch.float64), x)
    assert passed[:3].tolist() == [0.0, 0.0, 0.0]
    assert passed[3].isnan()
    (of_x,) = torch.autograd.grad(passed[:3].sum(), x)
    assert of_x[:3].tolist() == [0.0, 0.0, 0.0]
