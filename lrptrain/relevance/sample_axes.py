"""Where the samples are in a recorded tensor, so that every normalising sum is taken per sample."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.functions import ENTRIES
from lrptrain.relevance.tape import Node, Value, tensors_in

_RESHAPES = frozenset("reshape view view_as reshape_as flatten unflatten ravel squeeze unsqueeze".split())


class SampleAxis(NamedTuple):
    """Entry i along `axis` belongs to sample `(i // inner) % samples`; heads or tokens may be merged into the axis."""

    axis: int
    inner: int = 1


Axes = dict[Value, SampleAxis | None]


def sample_axes(nodes: Iterable[Node], root: Value, samples: int) -> Axes:
    """Follow the samples from the input through all recorded operations.

    None stands for "lost": a rule that needs the axis then refuses, rather than mixing samples.
    """
    axes: Axes = {root: SampleAxis(0)}
    for node in nodes:
        source = node.inputs[0]
        for output in node.outputs:
            axes[output] = _follow(node, source, output, axes.get(source), samples)
    return axes


def _follow(node: Node, source: Value, output: Value, at: SampleAxis | None, samples: int) -> SampleAxis | None:
    if at is None or samples == 1:
        return at
    before, after = source.tensor.shape, output.tensor.shape
    if node.name in _RESHAPES and source.tensor.numel() == output.tensor.numel():
        return _reshaped(at, before, after, samples)
    axis: int | None = None
    if node.name in ENTRIES:
        axis = _by_strides(node, source, output, at.axis)
    elif node.name in ("mean", "sum") and len(after) < len(before):
        axis = _reduced(node, at.axis, len(before))
    if axis is None:
        axis = at.axis + len(after) - len(before)
    return SampleAxis(axis, at.inner) if 0 <= axis < len(after) and after[axis] == before[at.axis] else None


def _reshaped(at: SampleAxis, before: torch.Size, after: torch.Size, samples: int) -> SampleAxis | None:
    """In reading order, the number of entries behind a sample index does not change."""
    behind = at.inner * math.prod(before[at.axis + 1 :])
    for axis, size in enumerate(after):
        rest = math.prod(after[axis + 1 :])
        if rest <= behind < rest * size:
            inner = behind // rest
            return SampleAxis(axis, inner) if behind % rest == 0 and size % (samples * inner) == 0 else None
    return None


def _by_strides(node: Node, source: Value, output: Value, axis: int) -> int | None:
    """Repeat a view on an empty tensor that has a stride along the sample axis only: the axis shows in the result."""
    strides = [int(i == axis) for i in range(source.tensor.ndim)]
    probe = torch.empty_strided(source.tensor.shape, strides, device="meta")
    try:
        result = node.call(lambda value: probe if value is source else value.tensor.to("meta"))
    except (RuntimeError, NotImplementedError, IndexError):
        return None
    views = [view for view in tensors_in(result) if view.shape == output.tensor.shape and view._base is not None]
    moved = [i for i, stride in enumerate(views[0].stride()) if stride] if views else []
    return moved[0] if len(moved) == 1 else None


def _reduced(node: Node, axis: int, ndim: int) -> int:
    dims = node.argument(1, "dim", node.kwargs.get("axis"))
    gone = [d % ndim for d in ([dims] if isinstance(dims, int) else dims or range(ndim))]
    return axis - sum(d < axis for d in gone) if axis not in gone else -1


def sum_per_sample(x: Float[Tensor, "..."], at: SampleAxis, samples: int) -> Float[Tensor, "..."]:
    """Sum over all entries of every sample, shaped to broadcast against `x`."""
    size = x.shape[at.axis]
    outer = size // (samples * at.inner)
    split = x.movedim(at.axis, 0).reshape(outer, samples, at.inner, -1)
    sums = split.sum((0, 2, 3)).view(1, samples, 1).expand(outer, samples, at.inner)
    shape = [1] * x.ndim
    shape[at.axis] = size
    return sums.reshape(shape)
