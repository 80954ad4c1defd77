"""Where the samples are in a recorded tensor, so that every normalising sum is taken per sample."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.tape.functions import (
    ADDING,
    AS_ANOTHER,
    DENSE,
    ELEMENTWISE,
    ENTRIES,
    NORMALISATIONS,
    PRODUCTS,
    PUTS,
    RESHAPES,
    SIZES,
    WRITTEN,
)
from lrptrain.relevance.tape.nodes import Node, Value, axis_letters, map_nested, named_axes, numbers_in, tensors_in
from lrptrain.relevance.tape.writes import indexed_write
from lrptrain.relevance.types import UnsupportedModelError

_REDUCTIONS = frozenset(["mean", "sum", "max", "amax", "min", "amin", "logsumexp"]) | SIZES
# They pick entries by indices along one axis, their second argument.
_PICKS = frozenset(["gather", "index_select", "topk", "sort"])
# They are no views, and may move entries along any axis.
_MOVES = frozenset(
    ["getitem", "repeat_interleave", "roll", "flip", "rot90", "fliplr", "flipud", "take_along_dim", "channel_shuffle"]
)
_PADS = frozenset(["pad", "constant_pad_nd"])
# They write entries into others, or add them to others, where indices say.
_WRITES = ADDING | WRITTEN | PUTS
# Operations of which the shapes tell; any other is tried.
_FOLLOWED = ENTRIES | ELEMENTWISE | DENSE | PRODUCTS | _REDUCTIONS
# The number of no sample, of what does not depend on the input.
_NONE = -1


class SampleAxis(NamedTuple):
    """The axis of a tensor that counts the samples; heads or tokens may be merged into it.

    Entry i along `axis` belongs to sample `(i // inner) % samples`. With 2 samples (a, b) and 3 tokens:

        [2, 3, width]   axis 0, inner 1:  a b
        [6, width]      axis 0, inner 3:  a a a b b b      tokens merged behind the samples
        [3 * 2, width]  axis 0, inner 1:  a b a b a b      tokens merged before the samples

    Where no such pattern says which entry is whose, as behind a router that sorts tokens by experts, a list does:

        [5, width]      axis 0, rows [1, 0, 0, 1, 0]

    Attributes:
        axis: The axis.
        inner: How many neighbours along the axis belong to one sample.
        rows: The sample of every entry along the axis, -1 for none; None where the pattern says it.
    """

    axis: int
    inner: int = 1
    rows: tuple[int, ...] | None = None

    @property
    def only(self) -> int | None:
        """The one sample that all entries belong to, as in a loop over samples; None if there are several."""
        rows = set(self.rows or ())
        return None if len(rows) != 1 or rows == {_NONE} else rows.pop()


Axes = dict[Value, SampleAxis | None]


def sample_axes(nodes: Iterable[Node], root: Value, samples: int) -> Axes:
    """Follow the samples from the input through all recorded operations.

    None stands for "lost": a rule that needs the axis then refuses, rather than mixing samples.
    """
    axes: Axes = {root: SampleAxis(0)}
    for node in nodes:
        for output in node.outputs:
            axes[output] = axes[root] if samples == 1 else _follow(node, output, axes, samples)
    return axes


def _follow(node: Node, output: Value, axes: Axes, samples: int) -> SampleAxis | None:
    if node.name in _WRITES:
        return _written(node, output, axes, samples)
    # The other input of `x.view_as(y)` gives a shape only; weights that depend on the input have no rule.
    read = node.inputs[:1] if node.name in AS_ANOTHER | DENSE | NORMALISATIONS else node.inputs
    if any(axes.get(value) is None for value in read):
        return None
    only = only_sample(read, axes)
    if only is not None:  # whatever is made of one sample alone
        return SampleAxis(0, rows=(only,) * (output.shape[0] if output.shape else 1))
    listed = any(at is not None and at.rows is not None for at in map(axes.get, read))
    # The labels of an einsum say which axes meet; in all others they are aligned from the last one on.
    agree = (node.name == "einsum" and not listed) or _agree(read, axes, samples)
    if node.name in ("write_through", "take") or (node.name in ENTRIES and (listed or not agree)):
        return _by_numbers(node, output, axes, samples)
    if not agree or crosses_samples(node, axes, samples):
        return None
    source = node.inputs[0]
    at = axes[source]
    assert at is not None
    if _sums_along(node, source, at.axis):
        return None
    before = source.shape
    after = output.shape
    if node.name in RESHAPES and before.numel() == after.numel():
        return _reshaped(at, before, after, samples)
    if node.name in _PICKS:
        picked = node.argument(1, "dim")
        along = not isinstance(picked, int) or picked % len(before) == at.axis
        return _by_numbers(node, output, axes, samples) if along else at
    axis = _axis(node, source, output, at)
    if axis is not None and 0 <= axis < len(after) and after[axis] == before[at.axis]:
        return at._replace(axis=axis)
    # One sample of several, or some of them. The zeros of padding would count as entries of the first sample.
    if node.name in ENTRIES - _PADS - {"unfold"}:
        return _by_numbers(node, output, axes, samples)
    return None if node.name in _FOLLOWED else _traced(node, output, axes, samples)


def only_sample(values: Sequence[Value], axes: Axes) -> int | None:
    """The one sample that all values are made of, or None."""
    samples = {None if at is None else at.only for at in map(axes.get, values)}
    return samples.pop() if len(samples) == 1 else None


def _sums_along(node: Node, source: Value, axis: int) -> bool:
    """Whether an operation that keeps the shape mixes what stands along an axis."""
    last = len(source.shape) - 1
    if node.name in ("softmax", "log_softmax", "cumsum"):
        along = node.argument(1, "dim", node.kwargs.get("axis"))
        return not isinstance(along, int) or along % len(source.shape) == axis
    if node.name == "linear":
        return axis == last
    if node.name in ("matmul", "mm", "bmm") and len(node.inputs) == 1:
        return axis == (last if node.argument(0, "input") is source else max(last - 1, 0))
    if node.name in _PADS:
        amounts = list(node.argument(1, "pad"))  # of the last axis first: before and behind it
        return any(amounts[2 * (last - axis) : 2 * (last - axis) + 2])
    return False


def _axis(node: Node, source: Value, output: Value, at: SampleAxis) -> int | None:
    """The output's sample axis; -1 where it is lost, None where indices have to say it."""
    before = len(source.shape)
    after = len(output.shape)
    if node.name == "stack":
        new_axis: int = node.argument(1, "dim", 0) % after
        return at.axis + (new_axis <= at.axis)
    if node.name == "fold" or (node.name == "unfold" and after < before):  # of images, samples first
        return at.axis
    if node.name == "einsum":
        inside, _, outside = axis_letters(node, source)
        return outside.find(inside[at.axis])
    if node.name == "unfold" and after < before:  # F.unfold: patches behind the channels; Tensor.unfold adds an axis
        return at.axis
    if node.name in _REDUCTIONS and after < before:
        return _reduced(node, at.axis)
    if node.name in ENTRIES:
        by_strides = _by_strides(node, source, output, at.axis)
        if by_strides is not None:
            return by_strides
        if node.name in _MOVES:
            return None
    return at.axis + after - before


def _reshaped(at: SampleAxis, before: torch.Size, after: torch.Size, samples: int) -> SampleAxis | None:
    """In reading order, the number of entries behind a sample index does not change."""
    # [2, 3, 8] -> [6, 8]: 24 entries stand behind a sample's index, which are 3 rows of 8.
    behind = at.inner * math.prod(before[at.axis + 1 :])
    for axis, size in enumerate(after):
        rest = math.prod(after[axis + 1 :])
        if rest <= behind < rest * size:
            inner = behind // rest
            return SampleAxis(axis, inner) if behind % rest == 0 and size % (samples * inner) == 0 else None
    return None


def _by_strides(node: Node, source: Value, output: Value, axis: int) -> int | None:
    """Repeat a view on an empty tensor that has a stride along the sample axis only: the axis shows in the result.

    None stands for "no view".
    """
    # A probe of shape [2, 3, 8] with strides (1, 0, 0), permuted to [3, 2, 8], has strides (0, 1, 0): the axis is 1.
    # It lies on the device "meta", which has shapes and strides but no memory.
    strides = [int(i == axis) for i in range(len(source.shape))]
    probe = torch.empty_strided(source.shape, strides, device="meta")
    try:
        result = node.call(lambda value: probe if value is source else value.tensor.to("meta"))
    except (RuntimeError, NotImplementedError, IndexError):
        return None
    views = [view for view in tensors_in(result) if view.shape == output.shape and view._base is probe]
    if not views:
        return None
    moved = [i for i, stride in enumerate(views[0].stride()) if stride and views[0].shape[i] > 1]
    return moved[0] if len(moved) == 1 else -1


def crosses_samples(node: Node, axes: Axes, samples: int) -> bool:
    """Whether a product of two activations multiplies those of one sample by those of another."""
    # [samples, width] @ [width, samples]: attention over the samples, of a model that has lost its axis of tokens.
    if samples == 1 or node.name not in PRODUCTS or len(node.inputs) != 2:
        return False
    if only_sample(node.inputs, axes) is not None:
        return False
    placed = list(_placed(node.inputs, axes))
    if node.name == "einsum":
        return len({axis_letters(node, value)[0][at.axis] for value, at in placed}) > 1
    return any(at.axis >= len(value.shape) - 2 for value, at in placed)


# -- Samples by their numbers ------------------------------------------------------------------------------------------


def _by_numbers(node: Node, output: Value, axes: Axes, samples: int) -> SampleAxis | None:
    """Repeat an operation on the numbers of the samples in the place of its inputs, and look where they stand then."""
    if any(axes.get(value) is None for value in node.inputs):
        return None

    def numbers(operand: Value | Tensor) -> Tensor:
        return _numbers(operand, axes, samples)

    # Constants among the inputs, as `cat` has them, are of no sample.
    args, kwargs = map_nested((node.args, node.kwargs), Tensor, lambda x: numbers(x) if x.is_floating_point() else x)
    args, kwargs = map_nested((args, kwargs), Value, numbers)
    results = [x for x in tensors_in(node.function(*args, **kwargs)) if x.dtype == torch.int16]
    return _located(results[node.outputs.index(output)], axes[node.inputs[0]], samples)


def _written(node: Node, output: Value, axes: Axes, samples: int) -> SampleAxis | None:
    """The same where entries are written into others, or added to them."""
    write = indexed_write(node)
    target = write.target
    source = write.source
    at = axes.get(target) if isinstance(target, Value) else None
    if not isinstance(source, Value):
        return at  # a constant is of no sample
    if axes.get(source) is None or (isinstance(target, Value) and at is None):
        return None
    of_target = _numbers(target, axes, samples)
    of_source = _numbers(source, axes, samples)
    numbers = of_target.clone()
    write.write(numbers, of_source)
    # An entry that entries of two samples were written to, or added to, belongs to neither.
    read = write.read(numbers)
    replaced = write.read(of_target)
    written = of_source
    if node.name.startswith("scatter"):
        written = of_source[tuple(slice(size) for size in read.shape)]
    elif node.name == "put":
        written = of_source.reshape(read.shape)
    once = read == written.expand_as(read)
    same_sample = (replaced == _NONE) | (replaced == read) if write.adds else torch.ones_like(once)
    return _located(numbers, at or axes[source], samples) if bool((once & same_sample).all()) else None


def _traced(node: Node, output: Value, axes: Axes, samples: int) -> SampleAxis | None:
    """The axis of the output of any operation, of which one sample's entries become NaN where its own are."""
    before = {value: _numbers(value, axes, samples) for value in node.inputs}
    numbers = torch.full(output.shape, _NONE, dtype=torch.int16, device=output.tensor.device)
    with torch.no_grad():
        for sample in range(samples):
            try:
                result = node.call(lambda value: value.tensor.masked_fill(before[value] == sample, torch.nan))  # noqa: B023
            except RuntimeError:  # some refuse NaN
                return None
            reached = list(numbers_in(result))[node.outputs.index(output)].isnan()
            if bool((reached & (numbers != _NONE)).any()):
                return None
            numbers[reached] = sample
    # An operation that leaves out NaN may hide some.
    hidden = bool((numbers == _NONE).any())
    return None if hidden else _located(numbers, axes[node.inputs[0]], samples)


def _numbers(operand: Value | Tensor, axes: Axes, samples: int) -> Tensor:
    """The sample of every entry, as int16; -1 for a constant."""
    at = axes.get(operand) if isinstance(operand, Value) else None
    device = (operand.tensor if isinstance(operand, Value) else operand).device
    if at is None:
        return torch.full([], _NONE, dtype=torch.int16, device=device).expand(operand.shape)
    size = operand.shape[at.axis] if operand.shape else 1
    rows = torch.tensor(_rows(at, size, samples), dtype=torch.int16, device=device)
    return rows.view([-1 if i == at.axis else 1 for i in range(len(operand.shape))]).expand(operand.shape)


def _rows(at: SampleAxis, size: int, samples: int) -> list[int]:
    """The sample of every entry along the axis."""
    return list(at.rows) if at.rows is not None else [i // at.inner % samples for i in range(size)]


def _located(numbers: Tensor, like: SampleAxis | None, samples: int) -> SampleAxis | None:
    """The axis along which numbers of samples are found, the same at all places of the other axes."""
    # Where there is but one sample, any axis will do: the one that was the samples' before comes first.
    first = like.axis if like is not None and like.axis < numbers.ndim else 0
    for axis in dict.fromkeys((first, *range(numbers.ndim))):
        others = [i for i in range(numbers.ndim) if i != axis]
        rows = numbers.amax(others, keepdim=True) if others and numbers.numel() else numbers
        if bool(((numbers == rows) | (numbers == _NONE)).all()):
            return _patterned(axis, tuple(rows.flatten().tolist()), samples)
    return None


def _patterned(axis: int, rows: tuple[int, ...], samples: int) -> SampleAxis:
    """The pattern of a list, if it has one."""
    inner = next((i for i, row in enumerate(rows) if row), len(rows))
    pattern = SampleAxis(axis, inner)
    regular = inner and len(rows) % (samples * inner) == 0 and _rows(pattern, len(rows), samples) == list(rows)
    return pattern if regular else SampleAxis(axis, rows=rows)


def _agree(inputs: Sequence[Value], axes: Axes, samples: int) -> bool:
    """Whether all inputs of an operation have the samples at the same entries of its output."""
    # From the last axis on, as in broadcasting: [5, width] and [5, 1], but not [1, width].
    placed = {(at.axis - len(x.shape), x.shape[at.axis] if x.shape else 1, at) for x, at in _placed(inputs, axes)}
    if len({(offset, size, at.inner, at.rows) for offset, size, at in placed}) == 1:
        return True
    return len({(offset, tuple(_rows(at, size, samples))) for offset, size, at in placed}) == 1


def _placed(inputs: Sequence[Value], axes: Axes) -> Iterable[tuple[Value, SampleAxis]]:
    return ((value, at) for value in inputs if (at := axes.get(value)) is not None)


def _reduced(node: Node, axis: int) -> int:
    # The order of a norm comes before its axes.
    removed = named_axes(node, 2 if node.name in SIZES - {"std"} else 1)
    return axis - sum(d < axis for d in removed) if axis not in removed else -1


def split_samples(x: Float[Tensor, "..."], at: SampleAxis, samples: int) -> Float[Tensor, "samples ..."]:
    """Bring the samples to the front; what was merged with them comes next."""
    if at.rows is not None:
        raise UnsupportedModelError(
            "the samples of a batch have no common pattern here, as in a loop over samples or behind a router that "
            "sorts tokens by experts: they cannot be told apart by shape; explain one sample at a time"
        )
    rest = x.movedim(at.axis, 0)
    # [outer * samples * inner, ...] -> [outer, samples, inner, ...] -> [samples, outer, inner, ...]
    return rest.reshape(-1, samples, at.inner, *rest.shape[1:]).transpose(0, 1)


def join_samples(x: Float[Tensor, "samples ..."], at: SampleAxis, shape: torch.Size) -> Float[Tensor, "..."]:
    """Undo `split_samples` (and any merging of axes after it) on a tensor of the given shape."""
    rest = [size for axis, size in enumerate(shape) if axis != at.axis]
    parts = x.reshape(x.shape[0], -1, at.inner, *rest)
    return parts.transpose(0, 1).reshape(shape[at.axis], *rest).movedim(0, at.axis)


def sum_per_sample(x: Float[Tensor, "..."], at: SampleAxis, samples: int) -> Float[Tensor, "..."]:
    """Sum over all entries of every sample, shaped to broadcast against `x`."""
    if at.only is not None:
        return x.sum()
    size = x.shape[at.axis]
    if at.rows is not None:
        rows = torch.tensor(at.rows, device=x.device) + 1  # what is of no sample comes first
        totals = x.new_zeros(samples + 1).index_add(0, rows, x.movedim(at.axis, 0).flatten(1).sum(1))
        return totals[rows].view([-1 if i == at.axis else 1 for i in range(x.ndim)])
    # One sum per sample, repeated wherever the sample stands along the axis: [1, 1, size, 1], say.
    sums = split_samples(x, at, samples).flatten(1).sum(1)
    shape = [1] * x.ndim
    shape[at.axis] = size
    return sums.view(1, samples, 1).expand(size // (samples * at.inner), samples, at.inner).reshape(shape)
