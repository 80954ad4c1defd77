"""The transposes of linear maps, against autograd."""

from typing import Any

import pytest
import torch
from small_models import Block
from torch.nn import functional as F

from lrptrain.relevance.passes.recording import run_on_tape
from lrptrain.relevance.propagation import linear_maps
from lrptrain.relevance.propagation.linear_maps import linear_map, transpose_of


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]
PATCHES: dict[str, Case] = {
    "patches": ((2, 3, 8, 12), (5, 3, 4, 4), {"stride": 4}),
    "patches that are no squares": ((2, 3, 8, 12), (5, 3, 4, 2), {"stride": (4, 2)}),
    "patches with pixels left over": ((2, 3, 11, 13), (5, 3, 4, 4), {"stride": 4, "padding": "valid"}),
    "single pixels": ((2, 3, 4, 5), (5, 3, 1, 1), {}),
    "frames of a waveform": ((2, 1, 21), (5, 1, 4), {"stride": 4, "padding": 0}),
    "tubes of a video": ((2, 3, 4, 8, 9), (5, 3, 2, 4, 4), {"stride": (2, 4, 4)}),
}
OTHERS: dict[str, Case] = {
    "overlapping": ((2, 3, 9, 9), (5, 3, 4, 4), {"stride": 2}),
    "with gaps": ((2, 3, 9, 9), (5, 3, 2, 2), {"stride": 3}),
    "padded": ((2, 3, 8, 8), (5, 3, 4, 4), {"stride": 4, "padding": 2}),
    "padded to the same size": ((2, 3, 8, 8), (5, 3, 1, 1), {"padding": "same"}),
    "dilated": ((2, 3, 9, 9), (5, 3, 2, 2), {"stride": 2, "dilation": 2}),
    "in groups": ((2, 4, 8, 8), (6, 2, 4, 4), {"stride": 4, "groups": 2}),
}


@pytest.mark.parametrize("name", [*PATCHES, *OTHERS])
@pytest.mark.parametrize("second_order", [False, True])
def test_the_transpose_of_a_convolution(name, second_order, monkeypatch):
    shape, size, options = (PATCHES | OTHERS)[name]
    convolve = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(shape)]
    weight = random(*size, seed=1)
    bias = random(size[0], seed=2)
    tape, _ = run_on_tape(Block(lambda x: convolve(x, weight, bias, **options)), random(*shape))
    node = tape.nodes[-1]
    value, _, _, forward = linear_map(node)
    leaf = value.tensor.detach().clone().requires_grad_()
    y = convolve(leaf, weight, None, **options)
    s = random(*y.shape, seed=3).requires_grad_(second_order)
    (expected,) = torch.autograd.grad(y, leaf, s, create_graph=second_order)
    if name in PATCHES:  # no convolution is run for it
        monkeypatch.setattr(linear_maps, "vjp", None)
    with torch.set_grad_enabled(second_order):
        found = transpose_of(node, value.tensor, forward)(s, weight)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if second_order:
        direction = random(*shape, seed=4)
        of_found, of_expected = (torch.autograd.grad((x * direction).sum(), s)[0] for x in (found, expected))
        torch.testing.assert_close(of_found, of_expected, rtol=1e-12, atol=1e-12)
