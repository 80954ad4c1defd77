"""The samples are found in every recorded tensor: whole batches are compared with numbers that name their sample."""

from collections.abc import Callable

import pytest
import torch
from small_models import Block
from torch import Tensor

from lrptrain.relevance.recording import run_on_tape
from lrptrain.relevance.tape.sample_axes import SampleAxis, join_samples, sample_axes, split_samples, sum_per_sample


def axis_of(function: Callable[[Tensor], Tensor], *shape: int) -> tuple[SampleAxis | None, Tensor]:
    """The axis found for the output of `function`, and that output where all entries are their sample's number."""
    samples = shape[0]
    numbers = torch.arange(1.0, samples + 1).view(-1, *[1] * (len(shape) - 1)).expand(shape)
    tape, output = run_on_tape(Block(function), numbers)
    value = tape.value_of(output)
    assert value is not None
    assert tape.root is not None
    return sample_axes(tape.nodes, tape.root, samples)[value], output.detach()


def merged_heads(x: Tensor) -> Tensor:
    samples, length, width = x.shape
    return x.view(samples, length, 2, width // 2).transpose(1, 2).reshape(samples * 2, length, width // 2)


def heads_in_front(x: Tensor) -> Tensor:
    samples, length, width = x.shape
    return x.view(samples, length, 2, width // 2).permute(2, 0, 1, 3).reshape(2 * samples, length, width // 2)


def torch_heads(x: Tensor) -> Tensor:
    """As in torch's multi-head attention: (L, N, E) -> (N * heads, L, d)."""
    x = x.transpose(0, 1)
    return x.contiguous().view(x.shape[0], x.shape[1] * 2, x.shape[2] // 2).transpose(0, 1)


def length_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1).reshape(-1, x.shape[-1])


FOUND = {
    "as it is": (lambda x: x * 1, SampleAxis(0)),
    "swapped": (lambda x: x.transpose(0, 1), SampleAxis(1)),
    "permuted": (lambda x: x.permute(2, 1, 0), SampleAxis(2)),
    "one token": (lambda x: x[:, 0], SampleAxis(0)),
    "one token of a sequence-first tensor": (lambda x: x.transpose(0, 1)[0], SampleAxis(0)),
    "new axis": (lambda x: x[None, :, 1:], SampleAxis(1)),
    "stacked in front": (lambda x: torch.stack([x, x, x, x]), SampleAxis(1)),
    "stacked behind": (lambda x: torch.stack([x, x, x, x], 1), SampleAxis(0)),
    "stacked last": (lambda x: torch.stack([x, x], -1), SampleAxis(0)),
    "joined": (lambda x: torch.cat([x, x[:, :1]], 1), SampleAxis(0)),
    "mean over tokens": (lambda x: x.mean(1), SampleAxis(0)),
    "mean over tokens in front": (lambda x: x.transpose(0, 1).mean(0), SampleAxis(0)),
    "chosen tokens": (lambda x: x[torch.arange(len(x)), torch.ones(len(x), dtype=torch.long)], SampleAxis(0)),
    "chosen tokens of each": (lambda x: x[:, torch.tensor([0, 2])], SampleAxis(0)),
    "tokens in one axis": (lambda x: x.flatten(0, 1), SampleAxis(0, 4)),
    "tokens in one axis, and back": (lambda x: x.flatten(0, 1).view(-1, 4, 6), SampleAxis(0)),
    "tokens in one axis, length first": (length_first, SampleAxis(0)),
    "merged heads": (merged_heads, SampleAxis(0, 2)),
    "merged heads in front": (heads_in_front, SampleAxis(0)),
    "merged heads of torch": (torch_heads, SampleAxis(0, 2)),
    "einsum": (lambda x: torch.einsum("bnd,bmd->nmb", x, x), SampleAxis(2)),
    "outer matmul": (lambda x: x @ x.mT, SampleAxis(0)),
    "broadcast by a constant": (lambda x: x[:, 0] + torch.zeros(5, 1, 1), SampleAxis(1)),
}


@pytest.mark.parametrize("samples", [2, 4, 6])  # 4: as many as tokens; 6: as many as features
@pytest.mark.parametrize("name", FOUND)
def test_axis(name, samples):
    function, expected = FOUND[name]
    found, output = axis_of(function, samples, 4, 6)
    assert found == expected
    if name in ("einsum", "outer matmul"):
        output = output.sign() * output.pow(0.5) / 6**0.5
    values = split_samples(output, expected, samples).flatten(1)
    assert torch.allclose(values, torch.arange(1.0, samples + 1)[:, None].expand_as(values))


LOST = {
    "sum of samples": lambda x: x.sum(0),
    "one sample": lambda x: x[1],
    "one sample of a sequence-first tensor": lambda x: x.transpose(0, 1)[:, 1],
    "joined samples": lambda x: torch.cat([x, x]),
    "shuffled samples": lambda x: x[torch.arange(len(x)).flip(0)],
    "contracted samples": lambda x: torch.einsum("bnd,bmd->nm", x, x),
}


@pytest.mark.parametrize("samples", [2, 4, 6])
@pytest.mark.parametrize("name", LOST)
def test_lost_axis(name, samples):
    assert axis_of(LOST[name], samples, 4, 6)[0] is None


def test_sum_per_sample():
    x = torch.arange(24.0).view(2, 12)  # axis 1 holds 2 outer groups of 3 samples of 2 entries
    sums = sum_per_sample(x, SampleAxis(1, 2), 3)
    assert sums.shape == (1, 12)
    for column in range(12):
        sample = column // 2 % 3
        assert sums[0, column] == sum(x[:, c].sum() for c in range(12) if c // 2 % 3 == sample)


@pytest.mark.parametrize("at", [SampleAxis(0), SampleAxis(0, 2), SampleAxis(1), SampleAxis(1, 4), SampleAxis(2, 2)])
def test_samples_that_were_split_are_joined_again(at):
    x = torch.randn(12, 24, 36)
    split = split_samples(x, at, 6)
    assert torch.equal(join_samples(split, at, x.shape), x)
    assert torch.equal(join_samples(split.flatten(1, 2), at, x.shape), x)
