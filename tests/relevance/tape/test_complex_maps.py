"""Complex numbers on the way: as the real maps that they are, or refused."""

import math
from collections.abc import Callable

import pytest
import torch
from golden_cases import relative_error
from model_zoo import randomised
from small_models import RELEVANCE, Block, Small, patches, raises, same
from torch import Tensor, nn

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


def mixed(x: Tensor) -> Tensor:
    """As FNet mixes tokens."""
    return torch.fft.fftn(x, dim=(1, 2)).real


def waves(size: int) -> Tensor:
    places = torch.arange(size, dtype=torch.float64)
    return 2 * math.pi * places[:, None] * places / size


def mixed_by_reals(x: Tensor) -> Tensor:
    def transformed(tokens: Tensor, entries: Tensor) -> Tensor:
        return torch.einsum("nm,bmd->bnd", tokens, torch.einsum("bmd,de->bme", x, entries))

    return transformed(waves(16).cos(), waves(8).cos()) - transformed(waves(16).sin(), waves(8).sin())


def filtered(x: Tensor) -> Tensor:
    """As filters in the frequencies do: there and back, with weights on the way."""
    weights = torch.complex(ANGLES[:9, :1].cos(), ANGLES[:9, :1].sin())
    return torch.fft.irfft(torch.fft.rfft(x, dim=1) * weights, n=16, dim=1)


@pytest.mark.parametrize("function", [rotated, rotated_by_conjugate])
def test_a_rotation_equals_that_of_real_numbers(function):
    same(Small(Block(function)), Small(Block(rotated_by_reals)), patches(), METHODS)


@pytest.mark.parametrize("place", ["between", "after"])
def test_a_fourier_transform_equals_its_matrices(place):
    one, other = (Small(**{place: Block(f)}) for f in (mixed, mixed_by_reals))
    same(one, other, patches(), ("attnlrp", "input_x_gradient"))


class Linear(nn.Module):
    """Patches, a map of them, and a head; no constant is added anywhere."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.embed, self.between, self.head = nn.Conv2d(3, 8, 4, 4, bias=False), function, nn.Linear(128, 4, bias=False)
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.between(self.embed(x).flatten(2).mT).flatten(1))


def in_two_parts(x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(x, dim=-1)[..., :4]
    return torch.stack([spectrum.real, spectrum.imag], -1).flatten(2)


def seen_as_real(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.fft.fft(x, dim=1)[..., :4]).flatten(2)


def rotated_in_two_parts(x: Tensor) -> Tensor:
    """Complex numbers have one axis less than the pairs that they are made of."""
    pairs = torch.view_as_complex(x.unflatten(-1, (4, 2)).contiguous()) * torch.polar(torch.ones_like(ANGLES), ANGLES)
    joined = torch.stack([pairs.real, pairs.imag], -1).flatten(2)
    return joined - joined.mean(1, keepdim=True)


@pytest.mark.parametrize("function", [mixed, filtered, rotated, in_two_parts, seen_as_real, rotated_in_two_parts])
@pytest.mark.parametrize("method", ["attnlrp", "gamma_lrp"])
def test_relevance_of_a_linear_map_is_conserved_per_sample(function, method):
    model = Linear(function)
    found = lrptrain.attribute(model, patches(), 1, method)
    torch.testing.assert_close(found.scores.flatten(1).sum(1), found.logits[:, 1], rtol=1e-9, atol=1e-12)
    singles = [lrptrain.attribute(model, image[None], 1, method).scores for image in patches()]
    assert relative_error(found.scores, torch.cat(singles)).max() < 1e-8


def of_two_activations(x: Tensor) -> Tensor:
    spectrum = torch.fft.fft(x, dim=1)
    return (spectrum * spectrum).real


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (of_two_activations, "computes with complex numbers"),
        (lambda x: torch.fft.fft(x, dim=1).abs(), "computes with complex numbers"),
        (lambda x: (x * 1j + 1).real, "computes with complex numbers"),
        (lambda x: torch.fft.fft(x, dim=0).real, "the samples of a batch"),
        (
            mixed,
            r"linear_map in module 'between' has no propagation rule \(it is fft_fftn, real\)",
        ),  # no rule tells its signs apart
    ],
)
def test_what_is_no_linear_map_of_a_sample_is_refused(function, match):
    raises(function, match)


def test_gradients_need_no_rule():
    reals = Small(Block(lambda x: torch.view_as_real(torch.fft.fft(x, dim=1)).square().sum(-1)))
    same(Small(Block(lambda x: torch.fft.fft(x, dim=1).abs() ** 2)), reals, patches(), ("input_x_gradient",))
