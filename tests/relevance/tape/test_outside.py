"""Numbers of activations that leave torch are refused by name; a single number for control flow is not."""

import numpy as np
import pytest
import torch
from small_models import Block, Small, patches, raises, same
from torch import Tensor

import lrptrain

LEAVING = {
    "numpy": lambda x: x + torch.from_numpy(x.detach().numpy() * 2),
    "array": lambda x: x * torch.as_tensor(np.asarray(x.detach()) > 0, dtype=x.dtype),
    "tolist": lambda x: x + torch.tensor(x.tolist(), dtype=x.dtype),
    "dlpack": lambda x: x + torch.from_dlpack(x.detach()),
}


@pytest.mark.parametrize("name", LEAVING)
def test_activations_that_leave_torch_are_refused(name):
    raises(LEAVING[name], f"{name} in module 'between' hands activations out of torch")
    with pytest.raises(lrptrain.UnsupportedOperationError, match="hands activations out"):
        lrptrain.attribute(Small(Block(LEAVING[name])), patches(), method="input_x_gradient")


def steered(x: Tensor) -> Tensor:
    return x * 2 if x.mean().item() > -100 and float(x[0, 0, 0]) > -100 else x


GOES_ON = {
    "control flow": (steered, lambda x: x * 2),
    "a constant from numpy": (lambda x: x + torch.from_numpy(np.ones(8)), lambda x: x + 1),
    "a constant that leaves": (lambda x: x + torch.tensor(torch.ones(8).tolist()), lambda x: x + 1),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_numbers_that_are_no_activations_are_nobodys_business(name):
    one, other = GOES_ON[name]
    same(Small(Block(one)), Small(Block(other)), patches())
