"""Writes into memory that tensors share: read as if the model had written nothing, or refused."""

import pytest
import torch
from golden_cases import relative_error
from small_models import RELEVANCE, Block, Small, patches, raises, same
from torch import Tensor

import lrptrain

METHODS = (*RELEVANCE, "attnlrp", "rollout")


def copied_into_a_buffer(x: Tensor) -> Tensor:
    buffer = x.new_empty(x.shape[1], x.shape[0], 8)
    first, last = buffer[..., :3], buffer[..., 3:]
    first.copy_(x.transpose(0, 1)[..., :3] * 2)
    last.copy_(x.transpose(0, 1)[..., 3:])
    return buffer.transpose(0, 1)


def joined(x: Tensor) -> Tensor:
    return torch.cat([x[..., :3] * 2, x[..., 3:]], -1)


def without_graph(x: Tensor) -> Tensor:
    x = x * 1
    copy = x.detach() * 2
    copy[:, 2:].zero_()
    copy.zero_()
    with torch.no_grad():
        x[:, :, 0].zero_()
    return x + copy


def set_to_constants(x: Tensor) -> Tensor:
    before = x
    x = x * 1
    x[:, 0].zero_()
    x[:, 1].fill_(0.5)
    x[:, 15:].copy_(torch.full((8,), 0.25, dtype=x.dtype))
    return before + x


def set_to_constants_without(x: Tensor) -> Tensor:
    place = torch.arange(16)[:, None]
    return x + torch.where(place == 1, 0.5, torch.where(place == 15, 0.25, x.masked_fill(place == 0, 0.0)))


def added_to_a_slice(x: Tensor) -> Tensor:
    x = x * 1
    x[..., 4:] += 2 * x[..., :4].relu()
    x[:, :3] *= 2
    return x


def added_to_a_slice_without(x: Tensor) -> Tensor:
    x = torch.cat([x[..., :4], x[..., 4:] + 2 * x[..., :4].relu()], -1)
    return torch.cat([x[:, :3] * 2, x[:, 3:]], 1)


IS_CONSTANT = torch.arange(16)[:, None] < 3


def by_index(x: Tensor) -> Tensor:
    y = x * 1
    y[:, :3] = 0.5
    return y


def by_mask(x: Tensor) -> Tensor:
    y = x * 1
    y[IS_CONSTANT.expand(x.shape)] = 0.5
    return y


def by_a_tensor(x: Tensor) -> Tensor:
    y = x * 1
    y[:, :3] = torch.full((3, x.shape[-1]), 0.5, dtype=x.dtype)
    return y


def chosen(x: Tensor) -> Tensor:
    return torch.where(IS_CONSTANT, 0.5, x)


PAIRS = {
    "copied into a buffer": (copied_into_a_buffer, joined),
    "added to a slice": (added_to_a_slice, added_to_a_slice_without),
    "without a graph": (without_graph, lambda x: x.masked_fill(torch.arange(8) == 0, 0.0)),
    "set to constants": (set_to_constants, set_to_constants_without),
    "a number, by index": (by_index, chosen),
    "a number, by a mask": (by_mask, chosen),
    "a tensor": (by_a_tensor, chosen),
}


@pytest.mark.parametrize("name", PAIRS)
def test_writes_through_views_equal_operations_that_write_nothing(name):
    one, other = PAIRS[name]
    same(Small(Block(one)), Small(Block(other)), patches(), METHODS)


@pytest.mark.parametrize("name", PAIRS)
def test_a_batch_equals_its_samples(name):
    model = Small(Block(PAIRS[name][0]))
    for method in METHODS:
        batch = lrptrain.attribute(model, patches(), 1, method).scores
        singles = [lrptrain.attribute(model, image[None], 1, method).scores for image in patches()]
        # Where contributions cancel, a rule divides by a sum of few digits: half of them are right in any case.
        assert relative_error(batch, torch.cat(singles)).max() < 1e-8, method


def read_before_and_after(x: Tensor) -> Tensor:
    x = x * 1
    view = x[:, 1:]
    before = view + 0.5
    x.mul_(2)
    return torch.cat([x[:, :1], view + 0.5 * before], 1)


def overlapping(x: Tensor) -> Tensor:
    x = x * 1
    first, last = x[:, :10], x[:, 6:]
    first.mul_(2)
    last.add_(1)
    return x


def of_a_hidden_tensor(x: Tensor) -> Tensor:
    x = torch.einsum("bnd,de->nbe", x, torch.eye(8, dtype=x.dtype))  # a view of a product that nobody holds
    x[:, :, :4].mul_(2)
    return x.transpose(0, 1)


def detached_alias(x: Tensor) -> Tensor:
    x = x * 1
    alias = x.detach()
    x.mul_(2)
    return x + alias


def written_through_an_alias(x: Tensor) -> Tensor:
    x = x * 1
    x.data.mul_(2)
    return x + 1


def detached_alias_of_a_buffer(x: Tensor) -> Tensor:
    buffer = torch.zeros_like(x)
    alias = buffer.detach()
    buffer[:, :8].copy_(x[:, :8])
    return x + alias


def bits(x: Tensor) -> Tensor:
    x = x * 1
    signs = x.detach().view(torch.int64)
    x.mul_(2)
    return x + signs.sign()


OTHER_VIEWS = (
    read_before_and_after, overlapping, of_a_hidden_tensor, detached_alias, written_through_an_alias,
    detached_alias_of_a_buffer, bits,
)  # fmt: skip


@pytest.mark.parametrize("function", OTHER_VIEWS)
def test_other_views_of_what_was_written_are_refused(function):
    raises(function, "in module 'between' reads a tensor that was changed in place through another view.*clone")


def shifted(x: Tensor) -> Tensor:
    x = x * 1
    x[:, 1:] = x[:, :-1]
    return x


def part_by_part(x: Tensor) -> Tensor:
    x = x * 1
    x[..., 0] = x[..., 1]
    return x


def scaled_by_a_part(x: Tensor) -> Tensor:
    x = x * 1
    return x.mul_(x[:, :1])


@pytest.mark.parametrize("function", [shifted, part_by_part, scaled_by_a_part])
def test_a_call_that_reads_the_memory_that_it_writes_is_refused(function):
    raises(function, r"in module 'between' reads memory that it writes into \(read a copy of it, by `.clone\(\)`\)")


def windows(x: Tensor) -> Tensor:
    """Windows of four tokens that overlap by two, as Longformer cuts them."""
    x = x * 1
    batch, token, entry = x.stride()
    return x.as_strided((len(x), 7, 4, 8), (batch, 2 * token, token, entry)).mean(2).repeat_interleave(2, 1)


def windows_without(x: Tensor) -> Tensor:
    return torch.stack([x[:, i : i + 4] for i in range(0, 14, 2)], 1).mean(2).repeat_interleave(2, 1)


def beside(x: Tensor) -> Tensor:
    x = x * 1
    return x + x[:, :, 4:].as_strided(x.shape, x.stride(), 0)


def test_strides_read_what_stands_there():
    relevance = ("attnlrp", "epsilon_lrp", "input_x_gradient")
    same(Small(after=Block(windows)), Small(after=Block(windows_without)), patches(), (*relevance, "rollout"))
    raises(beside, "as_strided in module 'between' has no propagation rule")
