"""Numbers that leave torch and come back: what is told, and what goes on."""

import numpy as np
import pytest
import torch
from small_models import Block, Small, patches, raises, same
from torch import Tensor

import lrptrain


def written_into(x: Tensor) -> Tensor:
    x = x * 1
    numbers = x.detach().numpy()
    numbers *= 2
    return x


def moved_and_scaled(x: Tensor) -> Tensor:
    """What comes back goes through operations of its own before it meets the values."""
    back = torch.from_numpy(np.sqrt(np.abs(x.detach().numpy())))
    return x + (back.to(x.dtype) * 2).reshape(x.shape)


BACK = {
    "numpy": lambda x: x + torch.from_numpy(x.detach().numpy() * 2),
    "array": lambda x: x * torch.as_tensor(np.asarray(x.detach()) > 0, dtype=x.dtype),
    "array, later": moved_and_scaled,
    "tolist": lambda x: x + torch.tensor(x.tolist(), dtype=x.dtype),
    "dlpack": lambda x: x + torch.from_dlpack(x.detach()),
    "array_wrap": lambda x: x + np.sin(x.detach()),
}


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
@pytest.mark.parametrize("name", BACK)
def test_what_comes_back_is_told(name):
    exported = {"array_wrap": "array", "array, later": "numpy"}.get(name, name)
    raises(
        BACK[name], rf"in module 'between' reads numbers that .*left torch before \(by {exported} in module 'between'"
    )


def test_what_is_written_into_shared_memory_is_told():
    raises(written_into, "writes into a tensor's memory")


def logged(x: Tensor) -> Tensor:
    assert np.isfinite(x.detach().numpy()).all()
    assert np.isfinite(x.numpy()).all()  # the model would run without gradients
    assert x.tolist()
    return x + torch.ones(8, dtype=x.dtype) * torch.tensor(0.5, dtype=x.dtype) * torch.arange(8) * torch.eye(8)[0]


def steered(x: Tensor) -> Tensor:
    return x * 2 if x.mean().item() > -100 and float(x[0, 0, 0]) > -100 else x


GOES_ON = {
    "logging": (logged, lambda x: x + 0.5 * torch.arange(8) * torch.eye(8)[0]),
    "control flow": (steered, lambda x: x * 2),
    "a constant from numpy": (lambda x: x + torch.from_numpy(np.ones(8)), lambda x: x + 1),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_numbers_that_do_not_come_back_are_nobodys_business(name):
    one, other = GOES_ON[name]
    same(Small(Block(one)), Small(Block(other)), patches())


def test_a_tensor_that_was_there_before_is_known():
    """A table of a closure, say, which no module owns."""
    table = torch.randn(8, dtype=torch.float64)
    same(Small(Block(lambda x: (x.tolist(), x + table)[1])), Small(Block(lambda x: x + table)), patches())


def test_gradient_methods_refuse_it_too():
    with pytest.raises(lrptrain.UnsupportedOperationError, match="left torch"):
        lrptrain.attribute(Small(Block(BACK["numpy"])), patches(), method="input_x_gradient")
