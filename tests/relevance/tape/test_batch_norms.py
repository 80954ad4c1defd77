"""A map depends on the function, not on whether its batch norms are written out: merged weights give the same."""

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
from golden_cases import relative_error
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

import lrptrain

METHODS: dict[str, Any] = {
    "attnlrp": {},
    "epsilon_lrp": {"epsilon": 0.1},
    "gamma_lrp": {"gamma": 0.25},
    "lrp": {},
    "input_x_gradient": {},
}


def trained(model: Any) -> Any:
    """Weights, statistics and scales at random, as after a training."""
    generator = torch.Generator().manual_seed(0)
    for name, x in (*model.named_parameters(), *model.named_buffers()):
        if x.is_floating_point():
            x.data = torch.randn(x.shape, generator=generator, dtype=torch.float64) * 0.5
            if name.endswith("var"):
                x.data = x.data.abs() + 0.3
    return model.double().eval()


def merged(model: nn.Sequential) -> nn.Sequential:
    """The same function without batch norms behind a layer, by torch's own fusion."""
    modules: list[nn.Module] = []
    for module in copy.deepcopy(model):
        before = modules[-1] if modules else None
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and isinstance(
            before, nn.Conv1d | nn.Conv2d | nn.Conv3d
        ):
            modules[-1] = fuse_conv_bn_eval(before, module)
        elif isinstance(module, nn.BatchNorm1d) and isinstance(before, nn.Linear):
            modules[-1] = fuse_linear_bn_eval(before, module)
        else:
            modules.append(module)
    return nn.Sequential(*modules)


def convolutional(**options) -> nn.Sequential:
    layers = [
        nn.Conv2d(3, 8, 3, **options),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=2),
        nn.BatchNorm2d(8),
    ]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


MODELS = {
    "convolutions": (lambda: convolutional(), (3, 12, 12)),
    "padded and strided, without a bias": (lambda: convolutional(padding=1, stride=2, bias=False), (3, 12, 12)),
    "without weights of the norm": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, affine=False, eps=1e-2), nn.ReLU(), nn.Flatten(), nn.Linear(800, 5)
        ),
        (3, 12, 12),
    ),
    "linear layers": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5), nn.BatchNorm1d(5)),
        (6,),
    ),
    "signals": (
        lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(80, 5)),
        (4, 12),
    ),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_maps_are_those_of_the_merged_model(name, method):
    make, shape = MODELS[name]
    model = trained(make())
    x = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(merged(model)(x), model(x))
    one, other = (lrptrain.attribute(each, x, 1, method, **METHODS[method]).input for each in (model, merged(model)))
    assert relative_error(one, other).max() < 1e-9


@pytest.mark.parametrize("method", ["epsilon_lrp", "gamma_lrp"])
def test_a_norm_before_a_linear_layer(method):
    model = trained(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 5)))
    norm, layer = model[2], copy.deepcopy(model[3])
    slope = norm.weight / (norm.running_var + norm.eps).sqrt()
    layer.bias.data = layer.bias + layer.weight @ (norm.bias - norm.running_mean * slope)
    layer.weight.data = layer.weight * slope
    x = torch.randn(3, 6, dtype=torch.float64)
    by_hand = nn.Sequential(*model[:2], layer)
    torch.testing.assert_close(by_hand(x), model(x))
    one, other = (lrptrain.attribute(each, x, 1, method).scores for each in (model, by_hand))
    assert relative_error(one, other).max() < 1e-9


def test_what_somebody_else_reads_is_left_alone():
    """A skip connection around the norm: the layer's output counts itself."""

    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm, self.head = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

        def forward(self, x):
            y = self.layer(x)
            return self.head(y + self.norm(y))

    model = trained(Skip())
    x = torch.randn(3, 6, dtype=torch.float64)
    assert [node.name for node in lrptrain.record(model, x).tape.nodes] == ["linear", "batch_norm", "add", "linear"]


def resnet() -> nn.Module:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)


def convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(24, 48, 1), CNBlockConfig(48, None, 2)], num_classes=5)


@pytest.mark.parametrize("make", [resnet, convnext])
def test_whole_networks(make):
    """Of torchvision, with fewer blocks; ConvNeXt has layer norms, and stays as it is."""
    model = trained(make())
    for module in model.modules():  # activations that neither die nor explode
        for each in module.parameters(recurse=False):
            if each.ndim > 1:
                each.data /= each[0].numel() ** 0.5
    fused = copy.deepcopy(model)
    for parent in list(fused.modules()):
        children = list(parent.named_children())
        for (first, layer), (second, norm) in pairwise(children):
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(parent, first, fuse_conv_bn_eval(layer, norm))
                setattr(parent, second, nn.Identity())
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(fused(x), model(x))
    for method in ("epsilon_lrp", "gamma_lrp"):
        one, other = (lrptrain.attribute(each, x, 1, method).input for each in (model, fused))
        assert relative_error(one, other).max() < 1e-6
