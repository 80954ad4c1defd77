"""The samples are found in every recorded tensor: whole batches are compared with numbers that name their sample."""

from collections.abc import Callable

import pytest
import torch
from small_models import Block, Small, patches
from torch import Tensor

import lrptrain
from lrptrain.relevance.passes.recording import run_on_tape
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
    "shuffled samples and others": lambda x: x[torch.arange(len(x)).flip(0)] + x,
    "tokens of two samples added": lambda x: x.index_add(0, torch.arange(len(x)).flip(0), x),
    "tokens of two samples written": lambda x: x[:1].index_copy(0, torch.zeros(len(x), dtype=torch.long), x),
    "samples that weigh samples": lambda x: x[:, 0] @ x[:, 0].T,
    "contracted samples": lambda x: torch.einsum("bnd,bmd->nm", x, x),
    "tokens of two samples accumulated": lambda x: x.index_put((torch.arange(len(x)).flip(0),), x, accumulate=True),
    "a softmax over samples": lambda x: x.softmax(0),
    "a layer that mixes samples": lambda x: torch.nn.functional.linear(x.permute(1, 2, 0), torch.ones(len(x), len(x))),
    "a product that mixes samples": lambda x: torch.ones(len(x), len(x)) @ x.transpose(0, 1),
    "padded samples": lambda x: torch.nn.functional.pad(x, (0, 0, 0, 0, 1, -1)),
    "one sample and all": lambda x: x + x[0],
}
# Operations after which no axis is that of the samples, or another one, or their order has changed.
MIXED = {
    "contracted": lambda x: torch.einsum("bnd,bc->cnd", x, torch.ones(len(x), len(x))),
    "reshaped": lambda x: x.reshape(4, len(x), 6).transpose(0, 1),
    "flipped": lambda x: x.flip(0),
    "rolled": lambda x: x.roll(1, 0),
    "turned": lambda x: x.rot90(2, (0, 1)),
    "tokens first": lambda x: x.transpose(0, 1) * torch.ones(4, 4, 1),
}


def of_mixed(name: str, first: bool, kind: str) -> Callable[[Tensor], Tensor]:
    """The sum, or the whole, of an input and what an operation makes of it."""

    def function(x: Tensor) -> Tensor:
        pair = (MIXED[name](x), x) if first else (x, MIXED[name](x))
        return pair[0] + pair[1] if kind == "sum" else torch.cat(pair, -1)

    return function


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", MIXED)
def test_a_lost_axis_is_noticed_in_every_operand(name, first):
    for kind in ("sum", "joined"):
        assert axis_of(of_mixed(name, first, kind), 4, 4, 6)[0] is None


@pytest.mark.parametrize("samples", [2, 4, 6])
@pytest.mark.parametrize("name", LOST)
def test_lost_axis(name, samples):
    assert axis_of(LOST[name], samples, 4, 6)[0] is None


# Of tokens [3, 16, 8] of a model. The first two tell by the numbers in a batch, or by the operation as a whole.
ACROSS: dict[str, Callable[[Tensor], Tensor]] = {
    "sorted": lambda t: t.sort(0)[0],
    "contracted": lambda t: torch.einsum("btd,bc->ctd", t, torch.ones(3, 3, dtype=t.dtype)),
    "flipped": lambda t: t.flip(0),
}


@pytest.mark.parametrize("form", ["gradient", "explicit"])
@pytest.mark.parametrize("name", ACROSS)
def test_no_map_where_samples_reach_the_logits_of_others(name, form):
    across = ACROSS[name]
    for function in (across, lambda t: t + across(t), lambda t: across(t) + t):
        with pytest.raises(lrptrain.UnsupportedOperationError, match="samples of a batch"):
            lrptrain.attribute(Small(after=Block(function)), patches(), 1, "attnlrp", form=form)


@pytest.mark.parametrize("method", ["attnlrp", "lrp"])
def test_logits_in_another_order_have_no_map(method):
    for function in (lambda t: t.roll(1, 0), lambda t: t[[1, 0, 2]]):
        with pytest.raises(lrptrain.UnsupportedOperationError, match="in another order"):
            lrptrain.attribute(Small(after=Block(function)), patches(), 1, method)


def test_tokens_picked_of_each_sample_are_put_together_in_order():
    places = [2, 0, 5]
    picked = Small(after=Block(lambda t: torch.stack([t[i, place] for i, place in enumerate(places)])[:, None]))
    at_once = Small(after=Block(lambda t: t[torch.arange(3), places][:, None]))
    for method in ("attnlrp", "lrp"):
        maps = [lrptrain.attribute(model, patches(), 1, method).scores for model in (picked, at_once)]
        assert torch.equal(*maps)


# Rows of 3 tokens of each of 2 samples, by experts: rows 0-2 are of the first sample.
SENT = torch.tensor([5, 0, 3, 1, 4, 2])


def by_experts(x: Tensor) -> Tensor:
    return torch.cat([part * 2 for part in x.flatten(0, 1)[SENT].split([1, 2, 3])])


def and_back(x: Tensor) -> Tensor:
    result = torch.zeros(6, x.shape[-1])
    result.index_add_(0, SENT[:1], by_experts(x)[:1])
    result.index_add_(0, SENT[1:], by_experts(x)[1:])
    return result.view(x.shape)


def written_in_order(x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    for token in range(x.shape[1]):
        result[:, token] = x[:, token]
    return result


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x[torch.tensor([1, 0])], SampleAxis(0, rows=(1, 0))),
        (by_experts, SampleAxis(0, rows=(1, 0, 1, 0, 1, 0))),
        (lambda x: x.flatten(0, 1)[SENT[:3]], SampleAxis(0, rows=(1, 0, 1))),
        (lambda x: x.flatten(0, 1)[torch.tensor([0, 2])], SampleAxis(0, rows=(0, 0))),
        (lambda x: x.flatten(0, 1).index_select(0, SENT.sort().values), SampleAxis(0, 3)),
        (lambda x: x.flatten(0, 1).index_select(0, SENT).unsqueeze(0), SampleAxis(1, rows=(1, 0, 1, 0, 1, 0))),
        (lambda x: x.transpose(0, 1)[SENT[:3] % 3], SampleAxis(1)),
        (lambda x: x.topk(2, 1).values, SampleAxis(0)),
        (and_back, SampleAxis(0)),
        (lambda x: x[1], SampleAxis(0, rows=(1, 1, 1))),
        (lambda x: torch.stack([x[1, 2], x[0, 1]]), SampleAxis(0, rows=(1, 0))),
        (lambda x: torch.stack([x[0, 2], x[1, 1]]), SampleAxis(0)),
        (lambda x: torch.cat([x, x]), SampleAxis(0)),
        (lambda x: torch.cat(x.flip(0).split(1)), SampleAxis(0, rows=(1, 0))),
        (lambda x: x.roll(1, 0), SampleAxis(0, rows=(1, 0))),
        (lambda x: x.roll(1, 1).flip(2), SampleAxis(0)),
        (lambda x: x.rot90(1, (0, 1)), SampleAxis(1)),
        (lambda x: x.transpose(0, 2).rot90(1, (0, 1)), SampleAxis(2)),
        (lambda x: (x * 0 + x).put(torch.arange(15), x[0]), SampleAxis(0)),
        (written_in_order, SampleAxis(0)),
        (lambda x: x.scatter(1, torch.zeros(2, 1, 5, dtype=torch.long), x[:, 2:]), SampleAxis(0)),
    ],
)
def test_samples_are_followed_by_indices(function, expected):
    found, output = axis_of(function, 2, 3, 5)
    assert found == expected
    # Each entry is a multiple of its sample's number: 1, or 2.
    rows = expected.rows or [i // expected.inner % 2 for i in range(output.shape[expected.axis])]
    along = output.movedim(expected.axis, 0).flatten(1)
    factor = along[0, 0] / (rows[0] + 1)
    assert torch.equal(along / factor, torch.tensor(rows)[:, None].expand(along.shape) + 1.0)


def test_sum_per_sample_of_rows_in_any_order():
    x = torch.arange(10.0).view(2, 5)
    sums = sum_per_sample(x, SampleAxis(1, rows=(1, 0, -1, 1, 1)), 2)
    of_first = x[:, 1].sum()
    of_second = x[:, [0, 3, 4]].sum()
    assert torch.equal(sums[0, [0, 1, 3, 4]], torch.stack([of_second, of_first, of_second, of_second]))
    with pytest.raises(lrptrain.UnsupportedModelError, match="one sample at a time"):
        split_samples(x, SampleAxis(1, rows=(1, 0, 1, 1, 1)), 2)


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
