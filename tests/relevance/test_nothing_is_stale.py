"""What is remembered of a model between two maps: a model that was changed is explained as a fresh copy of it is."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from model_zoo import KINDS
from torch import nn
from torch.nn.utils import parametrize

import lrptrain
from lrptrain.relevance.fast import structure
from lrptrain.relevance.fast.structure import MOST_KNOWN

METHODS = ("input_x_gradient", "attnlrp", "rollout", "leave_one_out")


class Halved(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight / 2


def linear_of(model: nn.Module) -> nn.Linear:
    return [x for x in model.modules() if isinstance(x, nn.Linear)][1]


def replace_a_layer(model: nn.Module) -> None:
    name = next(name for name, x in model.named_modules() if x is linear_of(model))
    parent, _, last = name.rpartition(".")
    layer = linear_of(model)
    torch.manual_seed(5)
    setattr(model.get_submodule(parent), last, nn.Linear(layer.in_features, layer.out_features).to(layer.weight))


def write_in_place(model: nn.Module) -> None:
    with torch.no_grad():
        linear_of(model).weight.mul_(0.5)


def other_memory(model: nn.Module) -> None:
    linear_of(model).weight.data = linear_of(model).weight.data * 0.5


def scaled(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output * 0.5


CHANGES: dict[str, Callable[[Any], object]] = {
    "a layer is replaced": replace_a_layer,
    "a parameter is written": write_in_place,
    "a parameter is given other memory": other_memory,
    "a hook is added": lambda model: linear_of(model).register_forward_hook(scaled),
    "a parametrisation is added": lambda model: parametrize.register_parametrization(
        linear_of(model), "weight", Halved()
    ),
    "another precision": lambda model: model.float(),
    "a module stands before the head": lambda model: setattr(
        model, "head" if hasattr(model, "head") else "classifier", nn.Sequential(nn.Tanh(), head_of(model))
    ),
    "in train mode, then back": lambda model: model.train().eval(),
    "a forward of its own": lambda model: setattr(linear_of(model), "forward", halved_forward(linear_of(model))),
}


def head_of(model: Any) -> nn.Module:
    return model.head if hasattr(model, "head") else model.classifier


class halved_forward:  # noqa: N801
    """A forward that was put into a module; a copy of the module has a copy of it."""

    def __init__(self, layer: nn.Linear):
        self.weight, self.bias = layer.weight, layer.bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight, self.bias) / 2


def inputs_for(model: nn.Module, inputs: Any) -> Any:
    precision = next(model.parameters()).dtype
    return inputs.to(precision) if isinstance(inputs, torch.Tensor) else inputs


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_changed_model_is_explained_as_it_is(name, change):
    model, inputs = KINDS[name].build(True), KINDS[name].inputs()
    before = [lrptrain.attribute(model, inputs, 1, method).scores for method in METHODS]
    CHANGES[change](model)
    given = inputs_for(model, inputs)
    for method, earlier in zip(METHODS, before, strict=True):
        found = lrptrain.attribute(model, given, 1, method).scores
        fresh = lrptrain.attribute(deepcopy(model), given, 1, method).scores
        assert torch.equal(found, fresh), method
        if change not in ("in train mode, then back", "another precision") and method != "rollout":
            assert not torch.allclose(found, earlier.to(found.dtype), rtol=1e-6, atol=1e-12), method


def test_a_hook_that_is_taken_away_counts_no_more():
    model, inputs = KINDS["vit"].build(True), KINDS["vit"].inputs()
    before = lrptrain.attribute(model, inputs, 1, "attnlrp").scores
    hook = linear_of(model).register_forward_hook(scaled)
    assert not torch.equal(lrptrain.attribute(model, inputs, 1, "attnlrp").scores, before)
    hook.remove()
    assert torch.equal(lrptrain.attribute(model, inputs, 1, "attnlrp").scores, before)


class Pooled(nn.Module):
    """Patches that are moved as `order` says before the model reads them."""

    def __init__(self, order: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        torch.manual_seed(0)
        self.order, self.patches, self.head = order, nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.patches(self.order(x))).flatten(2).mean(2))


@pytest.mark.parametrize("method", ["attnlrp", "input_x_gradient"])
def test_settings_and_sizes_of_the_input_count(method):
    model: Any = Pooled(lambda x: x).eval()
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    assert lrptrain.attribute(model, images, 1, method).grid == (4, 4)
    model.patches.stride = (2, 2)
    assert lrptrain.attribute(model, images, 1, method).grid == (7, 7)
    assert lrptrain.attribute(model, images[:, :, :8], 1, method).grid == (3, 7)
    model.patches = nn.Conv2d(3, 8, 8, 8)
    assert lrptrain.attribute(model, images, 1, method).grid == (2, 2)
    assert len(lrptrain.attribute(model, images[:1], 1, method).scores) == 1


@pytest.mark.parametrize("method", ["attnlrp", "input_x_gradient"])
def test_where_indices_say_which_entries_go_where_nothing_is_remembered(method):
    """Lines of an image that are sorted by their brightness go elsewhere in each image."""

    def sorted_lines(x: torch.Tensor) -> torch.Tensor:
        return x.index_select(2, x[0].mean((0, 2)).argsort().detach())

    model = Pooled(sorted_lines).eval()
    for seed in range(3):
        images = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        found = lrptrain.attribute(model, images, 1, method)
        fresh = lrptrain.attribute(deepcopy(model), images, 1, method)
        assert torch.equal(found.scores, fresh.scores)


def test_few_structures_are_remembered():
    model = Pooled(lambda x: x).eval()
    for size in range(8, 8 + 4 * MOST_KNOWN, 4):
        lrptrain.attribute(model, torch.randn(2, 3, size, 8), 1, "attnlrp")
    assert len(structure._known[model]) == MOST_KNOWN
