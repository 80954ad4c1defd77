"""Writes through views: what every tensor of the memory holds then is read as if the model had written nothing."""

import pytest
import torch
from golden_cases import relative_error
from small_models import RELEVANCE, Block, Small, patches, raises, same
from torch import Tensor

import lrptrain

METHODS = (*RELEVANCE, "attnlrp", "rollout")


def read_before_and_after(x: Tensor) -> Tensor:
    x = x * 1
    view = x[:, 1:]
    before = view + 0.5
    x.mul_(2)
    return torch.cat([x[:, :1], view + 0.5 * before], 1)


def read_before_and_after_without(x: Tensor) -> Tensor:
    return torch.cat([x[:, :1] * 2, x[:, 1:] * 2 + 0.5 * (x[:, 1:] + 0.5)], 1)


def copied_into_a_buffer(x: Tensor) -> Tensor:
    buffer = x.new_empty(x.shape[1], x.shape[0], 8)
    first, last = buffer[..., :3], buffer[..., 3:]
    first.copy_(x.transpose(0, 1)[..., :3] * 2)
    last.copy_(x.transpose(0, 1)[..., 3:])
    return buffer.transpose(0, 1)


def joined(x: Tensor) -> Tensor:
    return torch.cat([x[..., :3] * 2, x[..., 3:]], -1)


def overlapping(x: Tensor) -> Tensor:
    x = x * 1
    first, last = x[:, :10], x[:, 6:]
    first.mul_(2)
    last.add_(1)
    first.mul_(3)
    last.relu_()
    return x


def overlapping_without(x: Tensor) -> Tensor:
    middle = ((x[:, 6:10] * 2 + 1) * 3).relu()
    return torch.cat([x[:, :6] * 2 * 3, middle, (x[:, 10:] + 1).relu()], 1)


def of_a_hidden_tensor(x: Tensor) -> Tensor:
    x = torch.einsum("bnd,de->nbe", x, torch.eye(8, dtype=x.dtype))  # a view of a product that nobody holds
    first, last = x[:, :, :4], x[:, :, 4:]
    first.mul_(2)
    last.mul_(3)
    return x.transpose(0, 1)


def of_a_hidden_tensor_without(x: Tensor) -> Tensor:
    x = torch.einsum("bnd,de->bne", x, torch.eye(8, dtype=x.dtype))
    return torch.cat([x[..., :4] * 2, x[..., 4:] * 3], -1)


def rows_of_samples(x: Tensor) -> Tensor:
    buffer = torch.zeros(16 * len(x), 2, 4, dtype=x.dtype)
    rows = buffer.view(16, len(x), 8)  # tokens and samples stand on one axis of the buffer
    rows.copy_(x.transpose(0, 1))
    return buffer.unflatten(0, (16, -1)).flatten(2).transpose(0, 1)


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
    kept = x[:, 2:]
    x[:, 0].zero_()
    x[:, 1].fill_(0.5)
    x[:, 15:].copy_(torch.full((8,), 0.25, dtype=x.dtype))
    return before + x + torch.nn.functional.pad(kept, (0, 0, 2, 0))


def set_to_constants_without(x: Tensor) -> Tensor:
    before = x
    place = torch.arange(16)[:, None]
    x = torch.where(place == 1, 0.5, torch.where(place == 15, 0.25, x.masked_fill(place == 0, 0.0)))
    return before + x + x.masked_fill(place < 2, 0.0)


def parts_of_one_another(x: Tensor) -> Tensor:
    x = x * 1
    x[..., 0] = x[..., 1]
    x[:, 2].copy_(x[:, 5])
    first, last = x[:, :3], x[:, 13:]
    first += last
    last.mul_(0.5 * first).add_(x[:, 4:7])
    x[:, 1:3] = 2 * x[:, 7:9]
    x[:, 9] = x[:, 10] = x[:, 11]
    return x


def parts_of_one_another_without(x: Tensor) -> Tensor:
    x = torch.cat([x[..., 1:2], x[..., 1:]], -1)
    first = torch.stack([x[:, 0], x[:, 1], x[:, 5]], 1) + x[:, 13:]
    last = x[:, 13:] * (0.5 * first) + x[:, 4:7]
    copies = x[:, 11:12].expand(-1, 3, -1)
    return torch.cat([first[:, :1], 2 * x[:, 7:9], x[:, 3:9], copies, x[:, 12:13], last], 1)


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
    "read before and after": (read_before_and_after, read_before_and_after_without),
    "copied into a buffer": (copied_into_a_buffer, joined),
    "overlapping": (overlapping, overlapping_without),
    "of a hidden tensor": (of_a_hidden_tensor, of_a_hidden_tensor_without),
    "rows of samples": (rows_of_samples, lambda x: x * 1),
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


def detached_alias(x: Tensor) -> Tensor:
    x = x * 1
    alias = x.detach()
    x.mul_(2)
    return x + alias


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


@pytest.mark.parametrize("function", [detached_alias, detached_alias_of_a_buffer, bits])
def test_what_does_not_follow_from_the_write_is_refused(function):
    raises(function, "in module 'between' reads a tensor that was changed in place through another view")


def test_parts_may_be_written_with_others_of_the_same_memory():
    one, other = (Small(after=Block(each)) for each in (parts_of_one_another, parts_of_one_another_without))
    same(one, other, patches(), ("attnlrp", "epsilon_lrp", "gamma_lrp", "lrp", "input_x_gradient"))


def shifted(x: Tensor) -> Tensor:
    x = x * 1
    x[:, 1:] = x[:, :-1]
    return x


def scaled_by_a_part(x: Tensor) -> Tensor:
    x = x * 1
    return x.mul_(x[:, :1])


def chosen_places(x: Tensor) -> Tensor:
    x = x * 1
    x[:, [3, 1]] = x[:, 5:7]
    return x


@pytest.mark.parametrize("function", [shifted, scaled_by_a_part, chosen_places])
def test_a_call_that_reads_what_it_writes_is_refused(function):
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
