"""What models do inside of a forward pass: it is recorded right, or it raises; relevance never leaks silently."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from model_zoo import KINDS
from small_models import Block, Small, patches, raises, same
from torch import Tensor, nn
from torch.nn import functional as F

import lrptrain

# What must raise


def under_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x * 2


def assigned(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 0] = 0
    return y


def added_to_a_slice(x: Tensor) -> Tensor:
    y = x * 1
    y[..., 4:] += x[..., :4]
    return y


def constant_overwritten(x: Tensor) -> Tensor:
    weight = torch.ones(8, 8, dtype=x.dtype)
    y = F.linear(x, weight)
    weight.zero_()
    return y


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (under_inference_mode, "inference_mode"),
        (constant_overwritten, "reads a constant that the model overwrites"),
        (lambda x: x.diff(dim=1), r"diff in module 'between' has no propagation rule.*register_rule\('diff', rule\)"),
        (lambda x: x.amax(0, keepdim=True) + x, "mixes the samples of a batch"),
        (lambda x: x**-2, "pow in module 'between' has no"),
        (lambda x: 1 / x, "rdiv in module 'between' has no"),
        (lambda x: torch.clamp(x, max=x * 2), "clamp in module 'between' depends on the input in more"),
        (
            lambda x: F.layer_norm(x, (8,), weight=x[0, 0]),
            "layer_norm in module 'between' depends on the input in more",
        ),
        (lambda x: F.linear(x, x[0, :8]), "linear in module 'between' has a weight or bias that depends"),
        (
            lambda x: F.linear(x, torch.eye(8, dtype=x.dtype), x[0, 0]),
            "linear in module 'between' has a weight or bias",
        ),
        (lambda x: x + x.cumsum(0), "mixes the samples"),
        (lambda x: x - x.mean(0), "mean in module .between. mixes the samples"),
    ],
)
def test_unsupported_operations_say_what_where_and_the_way_out(function, match):
    raises(function, match)


def test_gradient_methods_need_no_rule():
    model = Small(Block(lambda x: x.logcumsumexp(1)))
    for method in ("generic_attention", "rollout", "raw_attention", "input_x_gradient"):
        assert lrptrain.attribute(model, patches(), method=method).scores.isfinite().all()


# What must equal the plain spelling


def in_place_add(x: Tensor) -> Tensor:
    y = x.flip(1)
    half = y.view(3 if len(y) == 3 else len(y), 16, 8)
    half += torch.ones(8, dtype=x.dtype)
    return half


def split_in_place(x: Tensor) -> Tensor:
    first, second = x.split(4, -1)
    return torch.cat([first, second.clone().add_(1)], -1)


BIAS = nn.Parameter(torch.ones(8, dtype=torch.float64))


def bias_without_its_middle(x: Tensor) -> Tensor:
    bias = BIAS.clone()
    bias[2:6].zero_()  # as Swin V2 of torchvision does with the bias of its keys
    return F.linear(x, torch.eye(8, dtype=x.dtype), bias)


def bias_in_parts(x: Tensor) -> Tensor:
    return F.linear(x, torch.eye(8, dtype=x.dtype), torch.cat([BIAS[:2], torch.zeros_like(BIAS[:4]), BIAS[:2]]))


IDENTICAL: dict[str, tuple[Callable, Callable]] = {
    "augmented addition": (in_place_add, lambda x: x.flip(1) + 1),
    "add_ on a part": (split_in_place, lambda x: x + F.pad(torch.ones(4, dtype=x.dtype), (4, 0))),
    "relu_": (lambda x: (x * 1).relu_(), torch.relu),
    "relu, in place by name": (lambda x: F.relu(x * 1, inplace=True), torch.relu),
    "relu, in place by position": (nn.Sequential(Block(lambda x: x * 1), nn.ReLU(inplace=True)), torch.relu),
    "leaky relu, in place": (lambda x: nn.LeakyReLU(inplace=True)(x * 1), F.leaky_relu),
    "elu, in place": (lambda x: nn.ELU(inplace=True)(x * 1), F.elu),
    "hardtanh, in place": (lambda x: nn.Hardtanh(inplace=True)(x * 1), F.hardtanh),
    "unfold": (
        lambda x: F.unfold(x.mT.unflatten(2, (4, 4)), 1).mT,
        lambda x: x * 1,
    ),
    "dropout of attention, in place but idle": (
        lambda x: F.dropout(x.softmax(-1), 0.5, training=False, inplace=True),
        lambda x: x.softmax(-1),
    ),
    "a constant assigned": (assigned, lambda x: x.masked_fill((torch.arange(16) == 0)[:, None], 0.0)),
    "a part of a constant set to 0": (bias_without_its_middle, bias_in_parts),
    "unbind": (lambda x: torch.stack(x.unbind(1), 1), lambda x: x * 1),
    "chunk and split": (lambda x: torch.cat([*x.chunk(2, 1)[0].split(2, 1), x[:, 8:]], 1), lambda x: x * 1),
    "squeeze in place": (lambda x: (x * 1).unsqueeze(1).squeeze_(1), lambda x: x * 1),
    "unused branch": (lambda x: (x.diff(dim=1), x)[1], lambda x: x * 1),
    "added to a slice": (lambda x: added_to_a_slice(x), lambda x: torch.cat([x[..., :4], x[..., 4:] + x[..., :4]], -1)),
    "rsub": (lambda x: 1 - x, lambda x: x.neg() + 1),
    "division by a negative number": (lambda x: x / -2, lambda x: x * -0.5),
    "where as a method": (lambda x: x.where(x > 0, 0.0), lambda x: x.masked_fill(x <= 0, 0.0)),
    "einsum with a constant": (
        lambda x: torch.einsum("bnd,de->bne", x, torch.eye(8, dtype=x.dtype)),
        lambda x: F.linear(x, torch.eye(8, dtype=x.dtype)),
    ),
    "constant matrix on the left": (
        lambda x: torch.eye(16, dtype=x.dtype).flip(0) @ x,
        lambda x: F.linear(x.transpose(1, 2), torch.eye(16, dtype=x.dtype).flip(0)).transpose(1, 2),
    ),
    "class token as method": (lambda x: x.type_as(x * 2).to(x).clone(), lambda x: x * 1),
}


@pytest.mark.parametrize("name", IDENTICAL)
def test_spellings_of_one_computation_agree(name):
    one, other = IDENTICAL[name]
    same(Small(Block(one)), Small(Block(other)), patches())


def test_no_grad_inside_a_forward_changes_nothing():
    class Frozen(Small):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad(), torch.no_grad():
                tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
            q, k, v = self.qkv(tokens).chunk(3, -1)
            return self.head((tokens + self.out(F.scaled_dot_product_attention(q, k, v))).mean(1))

    same(Frozen(), Small(), patches())
    assert torch.is_grad_enabled()


def test_updates_of_parameters_under_no_grad_are_the_models_business():
    class Normed(Small):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.position.clamp_(-10, 10)
            return super().forward(x)

    same(Normed(), Small(), patches())
    spectral: Any = Small()
    nn.utils.parametrizations.spectral_norm(spectral.head)
    before = spectral.head.parametrizations.weight[0]._u.clone()
    lrptrain.attribute(spectral.train(), patches())
    assert torch.equal(before, spectral.head.parametrizations.weight[0]._u)


@pytest.mark.parametrize("name", ["vit", "bert", "torchvision_vit"])
def test_frozen_layers_equal_trained_ones(name):
    kind = KINDS[name]
    frozen = kind.build(True).requires_grad_(False)
    same(frozen, kind.build(True), kind.inputs())
