"""After an attribution, and after one that fails, the model, the GPU's random state and its streams are as before."""

from typing import Any

import pytest
import torch
from model_zoo import KINDS
from on_device import both, distance
from torch import Tensor, nn

import lrptrain

pytestmark = pytest.mark.usefixtures("repeatable")
SIZE = 1 << 20


def random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def state_of(model: nn.Module, device: torch.device) -> dict[str, Any]:
    """What an attribution must leave."""
    return {
        "weights": {name: x.detach().clone() for name, x in model.state_dict().items()},
        "gradients": {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()},
        "modes": [module.training for module in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "needs gradients": [p.requires_grad for p in model.parameters()],
        "cpu": torch.get_rng_state(),
        "random": random_state(device),
        "stream": torch.cuda.current_stream(device) if device.type == "cuda" else None,
        "grad": torch.is_grad_enabled(),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def assert_as_before(before: dict[str, Any], model: nn.Module, device: torch.device) -> None:
    after = state_of(model, device)
    assert not [name for name in before if not same(before[name], after[name])]


@pytest.mark.parametrize("method", ["attnlrp", "transformer_attribution", "input_x_gradient", "smoothgrad"])
@pytest.mark.parametrize("kind", ["vit", "bert", "hiera"])
def test_everything_is_as_before(kind, method, device):
    model, inputs = both(kind, device)[1]
    torch.manual_seed(3)
    torch.rand(3, device=device)
    next(iter(model.parameters())).grad = torch.ones_like(next(iter(model.parameters())))
    before = state_of(model, device)
    try:
        lrptrain.attribute(model, inputs, 1, method)
    except lrptrain.UnsupportedMethodError:
        pytest.skip("this model has no such map on any device")
    assert_as_before(before, model, device)


class Noisy(nn.Module):
    """Draws on its device in every call, whatever its mode."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, image: Tensor) -> Tensor:
        return self.net(image + 0.01 * torch.randn_like(image))


def test_random_numbers_that_the_model_draws_on_its_device_are_given_back(device):
    model, inputs = both("vit", device)[1]
    noisy = Noisy(model)
    torch.manual_seed(4)
    before = state_of(noisy, device)
    first = lrptrain.attribute(noisy, inputs, 1).scores
    assert_as_before(before, noisy, device)
    assert distance(first, lrptrain.attribute(noisy, inputs, 1).scores) < 1e-6


class Full(nn.Module):
    """Runs out of memory: in its forward pass, or in the backward pass behind it."""

    def __init__(self, net: nn.Module, where: str):
        super().__init__()
        self.net, self.where = net, where

    def forward(self, image: Tensor) -> Tensor:
        found = self.net(image)
        if self.where == "forward":
            fill(found.device)
        elif found.requires_grad:
            found.register_hook(lambda gradient: fill(gradient.device))
        return found


def fill(device: torch.device) -> None:
    """Ask for more than there is."""
    if device.type != "cuda":
        raise torch.OutOfMemoryError("CUDA out of memory")
    torch.empty(1 << 44, device=device)


# attnlrp walks the tape: no autograd passes the hook.
@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("attnlrp", "forward"),
        *((method, where) for method in ("generic_attention", "input_x_gradient") for where in ("forward", "backward")),
    ],
)
def test_out_of_memory_leaves_the_model_as_it_was(method, where, device):
    model, inputs = both("vit", device)[1]
    full = Full(model, where)
    before = state_of(full, device)
    whole = lrptrain.attribute(model, inputs, 1, method).scores
    held = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    with pytest.raises(torch.OutOfMemoryError):
        lrptrain.attribute(full, inputs, 1, method)
    assert_as_before(before, full, device)
    assert distance(lrptrain.attribute(model, inputs, 1, method).scores, whole) < 1e-6
    if device.type == "cuda":
        assert torch.cuda.memory_allocated(device) <= held + SIZE


def test_memory_that_really_ends_amid_an_attribution(device):
    if device.type == "cpu":
        pytest.skip("the CPU's memory has no bound to set")
    model, inputs = both("vit", device)[1]
    many = inputs.repeat(4096, 1, 1, 1)
    whole = lrptrain.attribute(model, inputs, 1).scores
    before = state_of(model, device)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(device) + (1 << 30)) / total, device)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            lrptrain.attribute(model, many.repeat(4, 1, 1, 1), 1)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    assert_as_before(before, model, device)
    assert distance(lrptrain.attribute(model, inputs, 1).scores, whole) < 1e-6


def test_a_stream_of_the_caller_and_copies_that_do_not_block(device):
    kind = KINDS["vit"]
    model, _ = both("vit", device)[1]
    images = kind.inputs(dtype=torch.float32)
    expected = lrptrain.attribute(model, images.to(device), 1).scores
    if device.type == "cpu":
        return
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    pinned = images.pin_memory()
    with torch.cuda.stream(side):
        found = lrptrain.attribute(model, pinned.to(device, non_blocking=True), 1).scores
        assert torch.cuda.current_stream(device) == side
    torch.cuda.current_stream(device).wait_stream(side)
    assert distance(found, expected) < 1e-6
    assert torch.cuda.current_stream(device) == torch.cuda.default_stream(device)
