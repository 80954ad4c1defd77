"""Where the samples are in a recorded tensor, so that every normalising sum is taken per sample."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.tape.functions import ENTRIES, SIZES
from lrptrain.relevance.tape.nodes import Node, Value, einsum_labels, tensors_in

_RESHAPES = frozenset(
    ["reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "ravel", "squeeze", "unsqueeze"]
)
_REDUCTIONS = frozenset(["mean", "sum", "max", "amax", "min", "amin"]) | SIZES


class SampleAxis(NamedTuple):
    """The axis of a tensor that counts the samples; heads or tokens may be merged into it.

    Entry i along `axis` belongs to sample `(i // inner) % samples`. With 2 samples (a, b) and 3 tokens:

        [2, 3, width]   axis 0, inner 1:  a b
        [6, width]      axis 0, inner 3:  a a a b b b      tokens merged behind the samples
        [3 * 2, width]  axis 0, inner 1:  a b a b a b      tokens merged before the samples

    Attributes:
        axis: The axis.
        inner: How many neighbours along the axis belong to one sample.
    """

    axis: int
    inner: int = 1


Axes = dict[Value, SampleAxis | None]


def sample_axes(nodes: Iterable[Node], root: Value, samples: int) -> Axes:
    """Follow the samples from the input through all recorded operations.

    None stands for "lost": a rule that needs the axis then refuses, rather than mixing samples.
    """
    axes: Axes = {root: SampleAxis(0)}
    for node in nodes:
        if node.name in ("put", "take"):
            axes[node.outputs[0]] = _at_places(node, axes, samples)
            continue
        source = node.inputs[0]
        for output in node.outputs:
            axes[output] = _follow(node, source, output, axes.get(source), samples)
    return axes


def _follow(node: Node, source: Value, output: Value, at: SampleAxis | None, samples: int) -> SampleAxis | None:
    if at is None or samples == 1:
        return at
    before = source.shape
    after = output.shape
    if node.name in _RESHAPES and source.shape.numel() == output.shape.numel():
        return _reshaped(at, before, after, samples)
    axis = _axis(node, source, output, at, samples)
    if axis < 0 and node.name == "getitem":
        return _merged(node, source, output, at, samples)
    return SampleAxis(axis, at.inner) if 0 <= axis < len(after) and after[axis] == before[at.axis] else None


def _axis(node: Node, source: Value, output: Value, at: SampleAxis, samples: int) -> int:
    """The output's sample axis; -1 where it is lost."""
    before = len(source.shape)
    after = len(output.shape)
    if node.name == "stack":
        new_axis: int = node.argument(1, "dim", 0) % after
        return at.axis + (new_axis <= at.axis)
    if node.name == "fold" or (node.name == "unfold" and after < before):  # of images, samples first
        return at.axis
    if node.name == "einsum":
        inside, outside = einsum_labels(node, source)
        return outside.find(inside[at.axis])
    if node.name == "unfold" and after < before:  # F.unfold: patches behind the channels; Tensor.unfold adds an axis
        return at.axis
    if node.name in _REDUCTIONS and after < before:
        return _reduced(node, at.axis, before)
    if node.name in ENTRIES:
        by_strides = _by_strides(node, source, output, at.axis)
        if by_strides is not None:
            return by_strides
        if node.name == "getitem":
            return _by_numbers(node, source, output, at, samples)
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
    views = [view for view in tensors_in(result) if view.shape == output.shape and view._base is not None]
    if not views:
        return None
    moved = [i for i, stride in enumerate(views[0].stride()) if stride and views[0].shape[i] > 1]
    return moved[0] if len(moved) == 1 else -1


def _by_numbers(node: Node, source: Value, output: Value, at: SampleAxis, samples: int) -> int:
    """Index a tensor of sample numbers in the place of the source, and look along which axis they count up."""
    x = source.tensor
    if at.inner > 1 or x.shape[at.axis] != samples:
        return -1
    numbers = torch.arange(samples, device=x.device)
    result = node.call(lambda _: numbers.view([-1 if i == at.axis else 1 for i in range(x.ndim)]).expand(x.shape))
    for axis, size in enumerate(output.shape):
        shaped = numbers.view([-1 if i == axis else 1 for i in range(len(output.shape))])
        if size == samples and bool((result == shaped).all()):
            return axis
    return -1


def _at_places(node: Node, axes: Axes, samples: int) -> SampleAxis | None:
    """The axis along which the numbers of the samples count up if they stand in the place of what is put or taken."""
    if any(axes.get(value) is None for value in node.inputs):
        return None

    def numbers_of(operand: Any) -> Tensor:
        at = axes.get(operand) if isinstance(operand, Value) else None
        if at is None:  # a constant, which is no sample's
            return torch.full(operand.shape, -1.0)
        return _numbered(at, operand.shape, samples).expand(operand.shape)

    source, places, *written = node.args
    numbers = node.function(numbers_of(source), places.cpu(), *(numbers_of(operand) for operand in written))
    for axis, size in enumerate(numbers.shape):
        for inner in range(1, size // samples + 1):
            if size % (samples * inner) == 0:
                expected = _numbered(SampleAxis(axis, inner), numbers.shape, samples)
                if bool(((numbers == expected) | (numbers < 0)).all()):
                    return SampleAxis(axis, inner)
    return None


def _numbered(at: SampleAxis, shape: torch.Size, samples: int) -> Tensor:
    """The number of the sample of every entry, to be broadcast."""
    numbers = torch.arange(shape[at.axis]) // at.inner % samples
    return numbers.view([-1 if i == at.axis else 1 for i in range(len(shape))]).float()


def _merged(node: Node, source: Value, output: Value, at: SampleAxis, samples: int) -> SampleAxis | None:
    """The same where indices of samples and of tokens pick rows one by one: `x[[0, 0, 1, 1], [3, 2, 0, 1]]`."""
    x = source.tensor
    if at.inner > 1 or x.shape[at.axis] != samples:
        return None
    numbers = torch.arange(samples, device=x.device)
    result = node.call(lambda _: numbers.view([-1 if i == at.axis else 1 for i in range(x.ndim)]).expand(x.shape))
    for axis, size in enumerate(output.shape):
        inner = size // samples
        rows = numbers.repeat_interleave(inner).view([-1 if i == axis else 1 for i in range(len(output.shape))])
        if size == samples * inner and bool((result == rows).all()):
            return SampleAxis(axis, inner)
    return None


def _reduced(node: Node, axis: int, ndim: int) -> int:
    # The order of a norm comes before its axes.
    position = 2 if node.name in SIZES - {"std"} else 1
    dims = node.argument(position, "dim", node.kwargs.get("axis"))
    gone = [d % ndim for d in ([dims] if isinstance(dims, int) else dims or range(ndim))]
    return axis - sum(d < axis for d in gone) if axis not in gone else -1


def split_samples(x: Float[Tensor, "..."], at: SampleAxis, samples: int) -> Float[Tensor, "samples ..."]:
    """Bring the samples to the front; what was merged with them comes next."""
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
    size = x.shape[at.axis]
    # One sum per sample, repeated wherever the sample stands along the axis: [1, 1, size, 1], say.
    sums = split_samples(x, at, samples).flatten(1).sum(1)
    shape = [1] * x.ndim
    shape[at.axis] = size
    return sums.view(1, samples, 1).expand(size // (samples * at.inner), samples, at.inner).reshape(shape)
