"""Complex numbers on the way: a rotation is that of real numbers, all else is refused."""

import pytest
import torch
from small_models import RELEVANCE, Block, Small, patches, same
from torch import Tensor

import lrptrain

METHODS = (*RELEVANCE, "attnlrp", "gamma_lrp", "epsilon_lrp", "rollout")
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
    same(Small(Block(function)), Small(Block(rotated_by_reals)), patches(), METHODS)


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
