"""Constants that a model writes into an activation."""

import pytest
import torch
from small_models import RELEVANCE, Block, Small, patches, same
from torch import Tensor

MASK = torch.zeros(16, 1, dtype=torch.float64)
MASK[3:] = 1.0


def by_index(x: Tensor) -> Tensor:
    y = x * 1
    y[:, :3] = 0.5
    return y


def by_mask(x: Tensor) -> Tensor:
    y = x * 1
    y[(MASK == 0).expand(x.shape)] = 0.5
    return y


def by_a_tensor(x: Tensor) -> Tensor:
    y = x * 1
    y[:, :3] = torch.full((3, x.shape[-1]), 0.5, dtype=x.dtype)
    return y


@pytest.mark.parametrize("written", [by_index, by_mask, by_a_tensor])
def test_a_constant_is_written_as_if_it_were_chosen(written):
    chosen = Small(Block(lambda x: torch.where(MASK == 0, 0.5, x)))
    same(Small(Block(written)), chosen, patches(), (*RELEVANCE, "attnlrp", "rollout"))
