"""Activations and norms that a model writes out equal the fused ones; what only looks like one is left alone."""

import math
from collections.abc import Callable

import pytest
import torch
from small_models import RELEVANCE, Block, Small, patches, raises, same
from torch import Tensor
from torch.nn import functional as F

import lrptrain
from lrptrain.relevance.passes.recording import run_on_tape
from lrptrain.relevance.propagation.normalisation import frozen
from lrptrain.relevance.tape.canonizers import collapse, unflatten
from lrptrain.relevance.tape.nodes import Node

METHODS = ("transformer_attribution", "partial_lrp", "lrp", "generic_attention", "input_x_gradient")
GAMMA = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
BETA = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def nodes(function: Callable[[Tensor], Tensor], *shape: int) -> list[Node]:
    x = torch.randn(shape or (3, 4, 8), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tape, output = run_on_tape(Block(function), x)
    value = tape.value_of(output)
    assert value is not None
    tape.keep_only(value)
    unflatten(tape)
    collapse(tape, len(x))
    return tape.nodes


def names(function: Callable[[Tensor], Tensor], *shape: int) -> list[str]:
    return [node.name for node in nodes(function, *shape)]


def new_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def in_place(x: Tensor) -> Tensor:
    y = torch.erf(x / math.sqrt(2))
    y += 1
    y *= x * 0.5
    return y


ACTIVATIONS: dict[str, tuple[Callable, Callable]] = {
    "gelu by tanh": (new_gelu, lambda x: F.gelu(x, approximate="tanh")),
    "gelu by erf": (lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))), F.gelu),
    "silu": (lambda x: x * torch.sigmoid(x), F.silu),
    "silu by exp": (lambda x: x / (1 + (-x).exp()), F.silu),
    "gelu in place": (in_place, F.gelu),
    "mish": (lambda x: x * F.softplus(x).tanh(), F.mish),
    "cube": (lambda x: x * x * x, lambda x: x.pow(3)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_written_out_activations_equal_the_fused_ones(name):
    one, other = ACTIVATIONS[name]
    assert names(one) == ["pointwise"]
    same(Small(Block(one)), Small(Block(other)), patches(), METHODS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_can_be_repeated_elsewhere(name):
    function = ACTIVATIONS[name][0]
    (node,) = nodes(function)
    other = torch.randn(2, 8, dtype=torch.float64)
    assert torch.equal(node.function(other), function(other))


def test_a_power_alone_counts_if_it_vanishes_at_0():
    assert names(lambda x: F.relu(x) ** 2) == ["relu", "pointwise"]
    assert names(lambda x: x**-2) == ["pow"]


def by_both_at_once(x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) * (variance + 1e-3).rsqrt() * GAMMA + BETA


NORMS: dict[str, tuple[Callable, Callable, str]] = {
    "rms": (
        lambda x: GAMMA * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)),
        lambda x: F.rms_norm(x, (8,), GAMMA, 1e-3),
        "rms_norm",
    ),
    "rms, cast": (
        lambda x: GAMMA * (x.clone() * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3)).to(torch.float64).clone(),
        lambda x: F.rms_norm(x, (8,), GAMMA, 1e-3),
        "rms_norm",
    ),
    "layer, by its centred values": (
        lambda x: (d := x - x.mean(-1, True)) / ((d * d).mean(-1, True) + 1e-3).sqrt() * GAMMA + BETA,
        lambda x: F.layer_norm(x, (8,), GAMMA, BETA, 1e-3),
        "layer_norm",
    ),
    "layer, by its variance": (
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-3).sqrt() * GAMMA + BETA,
        lambda x: F.layer_norm(x, (8,), GAMMA, BETA, 1e-3),
        "layer_norm",
    ),
    "layer, by both at once": (
        by_both_at_once,
        lambda x: F.layer_norm(x, (8,), GAMMA, BETA, 1e-3),
        "layer_norm",
    ),
    "unit length": (
        lambda x: F.normalize(x, dim=-1),
        lambda x: F.rms_norm(x, (8,), torch.full((8,), 8**-0.5, dtype=torch.float64), 0.0),
        "rms_norm",
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_written_out_norms_equal_the_fused_ones(name):
    one, other, kind = NORMS[name]
    assert names(one) == [kind]
    same(Small(Block(one)), Small(Block(other)), patches(), METHODS)


@pytest.mark.parametrize("name", NORMS)
def test_frozen_written_out_norms(name):
    one, other, _ = NORMS[name]
    (found,), (expected,) = nodes(one), nodes(other)
    x = torch.randn(3, 4, 8, dtype=torch.float64)
    assert torch.allclose(frozen(found)(x), frozen(expected)(x), rtol=1e-12, atol=1e-12)


def test_what_only_looks_like_one_is_left_alone():
    weight = torch.randn(8, 8, dtype=torch.float64)
    position = torch.randn(4, 8, dtype=torch.float64)
    assert names(lambda x: x + F.linear(x, weight)) == ["linear", "add"]
    assert names(lambda x: F.silu(F.linear(x, weight)) * F.linear(x, weight)) == ["linear", "silu", "linear", "mul"]
    assert names(lambda x: x / x) == ["div"]
    assert names(lambda x: x * x.mean(-1, keepdim=True).sigmoid()) == ["mean", "sigmoid", "mul"]
    assert names(lambda x: x - x.mean(-1, keepdim=True)) == ["mean", "sub"]
    assert "rms_norm" not in names(lambda x: x * x.square().mean(0, keepdim=True).rsqrt())  # over the samples
    assert "rms_norm" not in names(lambda x: (r := x.square().mean(-1, keepdim=True).rsqrt()) * x + r)
    assert names(lambda x: x * x.square().mean(-1, keepdim=True).rsqrt() + position) == ["rms_norm", "add"]
    raises(lambda x: x * x.std(0, keepdim=True), "std in module 'between' mixes the samples")


def test_constants_of_a_region_are_watched():
    def overwritten(x: Tensor) -> Tensor:
        slope = torch.ones(8, dtype=x.dtype)
        y = x * torch.sigmoid(x * slope)
        slope.zero_()
        return y

    raises(overwritten, "pointwise in module 'between' reads a constant that the model overwrites")


def test_linear_layers_on_flattened_tokens():
    weight = torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4))

    def flattened(x: Tensor) -> Tensor:
        return torch.addmm(BETA, x.reshape(-1, 8), weight).view(x.shape)

    assert names(flattened) == ["linear"]
    assert names(lambda x: F.linear(x.reshape(-1, 8), weight).view(3, 2, 16)) == ["reshape", "linear", "view"]
    same(Small(Block(flattened)), Small(Block(lambda x: F.linear(x, weight.T, BETA))), patches(), METHODS)


PRODUCTS: dict[str, tuple[Callable, Callable]] = {
    "baddbmm": (
        lambda x: x + torch.baddbmm(torch.full((1, 1, 1), torch.nan).double(), x @ x.mT, x, beta=0, alpha=0.5),
        lambda x: x + x @ x.mT @ x * 0.5,
    ),
    "baddbmm with a sum": (lambda x: torch.baddbmm(x, x @ x.mT, x, beta=2), lambda x: x * 2 + x @ x.mT @ x),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_fused_products_equal_the_plain_ones(name):
    one, other = PRODUCTS[name]
    same(Small(Block(one)), Small(Block(other)), patches(), METHODS)


# Rotations by complex numbers

OF_ROTATIONS = (*RELEVANCE, "attnlrp", "gamma_lrp", "epsilon_lrp", "rollout")
ANGLES = torch.arange(16, dtype=torch.float64)[:, None] / 10 ** torch.arange(4)


def rotated(x: Tensor) -> Tensor:
    """As DeepSeek-V2 encodes positions."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(ANGLES), ANGLES)).flatten(2).type_as(x)


def rotated_by_conjugate(x: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(torch.polar(torch.ones_like(ANGLES), -ANGLES).conj() * pairs).flatten(2)


def rotated_by_reals(x: Tensor) -> Tensor:
    first, second = x.unflatten(-1, (4, 2)).unbind(-1)
    less = first * ANGLES.cos() - second * ANGLES.sin()
    return torch.stack([less, first * ANGLES.sin() + second * ANGLES.cos()], -1).flatten(2)


@pytest.mark.parametrize("function", [rotated, rotated_by_conjugate])
def test_a_rotation_equals_that_of_real_numbers(function):
    same(Small(Block(function)), Small(Block(rotated_by_reals)), patches(), OF_ROTATIONS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.fft.fftn(x, dim=(1, 2)).real,
        lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=16, dim=1),
        lambda x: torch.fft.fft(x, dim=1).abs(),
        lambda x: (x * 1j + 1).real,
    ],
)
def test_other_complex_numbers_are_refused(function):
    for method in ("attnlrp", "gamma_lrp", "lrp"):
        with pytest.raises(lrptrain.UnsupportedOperationError, match="computes with complex numbers"):
            lrptrain.attribute(Small(Block(function)), patches(), method=method)


def test_gradients_need_no_rule():
    reals = Small(Block(lambda x: torch.view_as_real(torch.fft.fft(x, dim=1)).square().sum(-1)))
    same(Small(Block(lambda x: torch.fft.fft(x, dim=1).abs() ** 2)), reals, patches(), ("input_x_gradient",))
