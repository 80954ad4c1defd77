"""Layer norm with a second derivative in few passes, against finite differences and torch's own."""

import pytest
import torch
from torch.nn import functional as F

from lrptrain.relevance.tape.double_backward import layer_norm as module
from lrptrain.relevance.tape.double_backward.layer_norm import frozen_gradient, layer_norm

FEATURES = 5
EPS = 1e-2


@pytest.fixture(autouse=True)
def some_tokens_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "_ENTRIES_AT_A_TIME", 2 * FEATURES + 1)


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3, FEATURES), (FEATURES,), (FEATURES,)]
    return [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


def own(x, weight, bias):
    return layer_norm(x, weight, bias, EPS)


def of_torch(x, weight, bias):
    return F.layer_norm(x, (FEATURES,), weight, bias, EPS)


def test_first_and_second_derivatives_are_those_of_finite_differences():
    assert torch.autograd.gradcheck(own, tensors())
    assert torch.autograd.gradgradcheck(own, tensors())


@pytest.mark.parametrize("of", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_second_derivative_of_each_gradient_is_that_of_torch(of):
    found = []
    for function in (own, of_torch):
        given = tensors()
        first = torch.autograd.grad(function(*given).pow(3).sum(), [given[i] for i in of], create_graph=True)
        found.append(torch.autograd.grad(torch.stack([x.pow(2).sum() for x in first]).sum(), given))
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-12)


def test_the_one_pass_serves_a_loss_on_the_gradient_of_the_input(monkeypatch):
    monkeypatch.setattr(module, "_by_torch", None)
    given = tensors()
    (first,) = torch.autograd.grad(own(*given).pow(3).sum(), given[:1], create_graph=True)
    first.pow(2).sum().backward()


def test_a_third_derivative_is_that_of_torch():
    found = []
    for function in (own, of_torch):
        given = tensors()
        derivative = function(*given).pow(3)
        for _ in range(3):
            (derivative,) = torch.autograd.grad(derivative.pow(2).sum(), given[:1], create_graph=True)
        found.append(derivative)
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


# -- With its denominator held fixed -----------------------------------------------------------------------------------


def frozen(gradient, x, weight):
    return frozen_gradient(gradient, x, weight, EPS)


def written_out(gradient, x, weight):
    scaled = gradient * weight
    return (scaled - scaled.mean(-1, keepdim=True)) * (x.var(-1, correction=0, keepdim=True) + EPS).rsqrt()


def given_gradient() -> list[torch.Tensor]:
    x, weight, _ = tensors()
    return [torch.randn_like(x).requires_grad_(), x, weight]


def test_first_and_second_derivatives_with_a_fixed_denominator_are_those_of_finite_differences():
    assert torch.autograd.gradcheck(frozen, given_gradient())
    assert torch.autograd.gradgradcheck(frozen, given_gradient())


def test_with_a_fixed_denominator_all_derivatives_are_those_of_operations_written_out():
    given = given_gradient()
    found = []
    for function in (frozen, written_out):
        result = function(*given)
        parts = [result]
        for _ in range(3):
            gradients = torch.autograd.grad(result.pow(2).sum(), given, create_graph=True)
            result = torch.cat([x.flatten() for x in gradients])
            parts.append(result)
        found.append(parts)
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-10)
