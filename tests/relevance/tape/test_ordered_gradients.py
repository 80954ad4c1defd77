"""The gradient of batch norm, which torch gets wrong for a transposed gradient at its output."""

from typing import Any

import pytest
import torch
from golden_cases import relative_error
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain


def gradient_of_batch_norm(ordered: bool) -> Tensor:
    """In evaluation mode, with a mean of 0 and a variance of 1: that at the output, over sqrt(1 + eps)."""
    x = torch.zeros(1, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    y = F.batch_norm(x, torch.zeros(2, dtype=x.dtype), torch.ones(2, dtype=x.dtype), eps=0.0)
    at_output = torch.arange(8.0, dtype=x.dtype).view(2, 1, 2, 2).permute(1, 3, 0, 2)  # strides (4, 1, 4, 2)
    (gradient,) = torch.autograd.grad(y, x, at_output.contiguous() if ordered else at_output)
    return gradient - at_output


@pytest.mark.xfail(strict=True, reason="torch's fault: where this passes, torch has fixed it; drop the guard")
@pytest.mark.skipif(torch.__version__ < "2.15", reason="not looked into with older versions")
def test_torch_itself():
    assert not gradient_of_batch_norm(ordered=False).any()


def test_a_gradient_in_order_is_passed_rightly():
    assert not gradient_of_batch_norm(ordered=True).any()


class Transposed(nn.Module):
    """A norm whose output is read in another order of its axes."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x).permute(2, 0, 3, 1).contiguous().softmax(-1)
        return self.head(y.permute(1, 0, 2, 3).reshape(len(x), 4, -1).tanh().mean(1))


def norm(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "instance":
        return Transposed(nn.InstanceNorm2d(4, affine=True)).double().eval()
    model: Any = Transposed(nn.BatchNorm2d(4)).double().eval()
    model.norm.running_var.uniform_(0.5, 2)
    model.norm.running_mean.normal_()
    return model


def _pixels(relevance: lrptrain.Relevance) -> Tensor:
    assert relevance.input is not None
    return relevance.input


@pytest.mark.parametrize("kind", ["batch", "instance"])
@pytest.mark.parametrize("method", ["input_x_gradient", "integrated_gradients", "smoothgrad"])
def test_a_batch_equals_its_samples(kind, method):
    x = torch.randn(3, 4, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = norm(kind)
    layout = lrptrain.TokenLayout(16, tuple(range(16)), (4, 4))
    together = _pixels(lrptrain.attribute(model, x, 1, method, layout=layout))
    alone = torch.cat([_pixels(lrptrain.attribute(model, row[None], 1, method, layout=layout)) for row in x])
    assert relative_error(alone, together).max() < 1e-12


@pytest.mark.parametrize("kind", ["batch", "instance"])
def test_gradients_are_those_of_numbers(kind):
    model = norm(kind)
    x = torch.randn(1, 4, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layout = lrptrain.TokenLayout(16, tuple(range(16)), (4, 4))
    found = lrptrain.attribute(model, x, 1, "input_x_gradient", layout=layout).input
    step = 1e-5
    slopes = [
        (model(x + step * unit) - model(x - step * unit))[0, 1].item() / (2 * step)
        for unit in torch.eye(x.numel(), dtype=x.dtype).view(-1, *x.shape)
    ]
    expected = (x.flatten() * torch.tensor(slopes, dtype=x.dtype)).view(x.shape).sum(1)
    # Central differences: an error of step^2, and eps / step of rounding.
    assert relative_error(found, expected).max() < 1e-8
