"""Where the numbers of an input go before they are mixed: which part of it a cell of a feature map stands for.

Two things are followed, both on the tape. Operations that only move entries (padding, reshaping, frames that become
samples) are repeated on the numbers of the entries. Convolutions and pooling shift and scale coordinates: a cell stands
where the middle of what it reads is.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.relevance.propagation.linear_maps import per_axis
from lrptrain.relevance.tape.functions import AVERAGES, COPIES, ELEMENTWISE, ENTRIES, MAXIMA, TRANSPOSITIONS
from lrptrain.relevance.tape.nodes import Node, Value, order_of_axes

_SCALES = frozenset({"add", "sub", "mul", "div"})
# They leave every cell where it is, as long as the shape of the map is the same behind them.
_IN_PLACE = ELEMENTWISE | _SCALES | {"cat", "concat", "concatenate", "chunk", "split", "split_with_sizes", "getitem"}
_RESAMPLED = frozenset(
    {"interpolate", "upsample"} | {name for name in AVERAGES | MAXIMA if name.startswith("adaptive")}
)

# Behind this number there are whole numbers that float32 does not have.
_COUNTED_IN_FLOAT32 = 1 << 24


class Line(NamedTuple):
    """Cell `i` of an axis stands at `scale * i + offset` of the axis that it comes from."""

    scale: float
    offset: float

    def behind(self, earlier: "Line") -> "Line":
        """The line through both, `earlier` being nearer to the input."""
        return Line(earlier.scale * self.scale, earlier.scale * self.offset + earlier.offset)

    def nearest(self, size: int, cells: int, device: torch.device) -> Int[Tensor, " size"]:
        """The cell of each of `size` places: the nearest one."""
        places = torch.arange(size, dtype=torch.float64, device=device)
        # Half a cell belongs to the later one: 0 to 3 and 4 to 7 for cells 4 wide, whose middles are 1.5 and 5.5.
        return ((places - self.offset) / self.scale + 0.5).floor().long().clamp(0, cells - 1)


def even_line(size: int, cells: int) -> Line:
    """Cells of equal width that fill an axis."""
    width = size / cells
    return Line(width, (width - 1) / 2)


def tiled(line: Line, size: int, cells: int) -> Line:
    """The line of cells that fill an axis if their steps do, whatever the padding has shifted them by."""
    # A kernel of 3 with stride 2 and padding 1 reads around places 0, 2, 4, ...: half a cell to the left of the middle.
    return even_line(size, cells) if line.scale * cells == size else line


def moved_from(nodes: Iterable[Node], root: Value) -> dict[Value, Node | None]:
    """All values that hold the input's entries, moved or scaled one by one, each with the node that made it."""
    moved: dict[Value, Node | None] = {root: None}
    for node in nodes:
        if len(node.inputs) == 1 and node.inputs[0] in moved and len(node.outputs) >= 1 and _only_moves(node):
            moved.update(dict.fromkeys(node.outputs, node))
    return moved


def _only_moves(node: Node) -> bool:
    if node.name in ENTRIES:
        return True
    return node.name in ELEMENTWISE | COPIES | _SCALES and node.outputs[0].shape == node.inputs[0].shape


def entry_numbers(moved: dict[Value, Node | None], value: Value) -> Float[Tensor, "..."]:
    """Which entry of the input stands at each place of `value`: its number from 1 on, 0 where there is none.

    Numbers are whole; they are kept in floating point, in which padding works in every mode: in float32 while that
    counts them one by one, which takes half of the memory.
    """
    node = moved[value]
    if node is None:
        count = value.shape.numel()
        precision = torch.float32 if count <= _COUNTED_IN_FLOAT32 else torch.float64
        return torch.arange(1, count + 1, dtype=precision, device=value.tensor.device).view(value.shape)
    numbers = entry_numbers(moved, node.inputs[0])
    if node.name not in ENTRIES:
        return numbers
    moved_numbers = _output(node, value, numbers)
    if moved_numbers.untyped_storage().data_ptr() == numbers.untyped_storage().data_ptr():  # a view: nothing is added
        return moved_numbers
    # What does not depend on the numbers is a constant, such as padding or a class token.
    is_constant = moved_numbers == _output(node, value, torch.zeros_like(numbers))
    return torch.where(is_constant, 0.0, moved_numbers)


def _output(node: Node, value: Value, numbers: Tensor) -> Tensor:
    result = node.call(lambda _: numbers)
    results = [x for x in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(x, Tensor)]
    return results[node.outputs.index(value)].to(numbers.dtype)


class Axes(NamedTuple):
    """Where the axes of a feature map `[samples, channels, *spatial]` are in one of its transposes."""

    order: tuple[int, ...]
    lines: tuple[Line, ...]

    @property
    def is_map(self) -> bool:
        """Whether they stand as convolutions read them."""
        return self.order == tuple(range(len(self.order)))


def lines_to(
    nodes: Sequence[Node], cells: Value, ends: dict[Value, Node | None], spatial: int
) -> tuple[Value, tuple[Line, ...]] | None:
    """Follow a feature map `[samples, channels, *spatial]` back to a value that holds the input's own entries.

    Returns:
        That value and one line for each spatial axis, or None if something else than convolutions, pooling, padding,
        transposition and operations on single entries or on channels stands between them on every way.
    """
    reached: dict[Value, Axes] = {cells: Axes(tuple(range(spatial + 2)), (Line(1.0, 0.0),) * spatial)}
    for node in reversed(nodes):
        axes = next((reached[value] for value in node.outputs if value in reached), None)
        if axes is None:
            continue
        for value in node.inputs:
            step = _step(node, value, axes)
            if step is None:
                continue
            if value in ends and step.is_map:
                return value, step.lines
            reached.setdefault(value, step)
    return None


def _step(node: Node, value: Value, axes: Axes) -> Axes | None:
    """The same of an operation's input; None where it does more than shift and scale coordinates."""
    ndim = len(axes.order)
    spatial = ndim - 2
    output = node.outputs[0].shape
    if len(value.shape) != ndim or len(output) != ndim:
        return None
    if node.name in TRANSPOSITIONS:
        moved = order_of_axes(node, ndim)
        return Axes(tuple(moved[axis] for axis in axes.order), axes.lines)
    sizes = [(value.shape[axis], output[axis]) for axis in axes.order[2:]]
    if node.name in _IN_PLACE and all(before == after for before, after in sizes):
        return axes
    if node.name == "linear" and axes.order[1] == ndim - 1:
        return axes
    lines = _shifted(node, value, spatial) if axes.is_map else None
    if lines is None:
        return None
    return Axes(axes.order, tuple(line.behind(earlier) for line, earlier in zip(axes.lines, lines, strict=True)))


def _shifted(node: Node, value: Value, spatial: int) -> list[Line] | None:
    if node.name == f"conv{spatial}d":
        return _convolved(node, value, spatial)
    if node.name in (f"max_pool{spatial}d", f"avg_pool{spatial}d"):
        return _pooled(node, spatial)
    if node.name in _RESAMPLED:
        return [even_line(size, cells) for size, cells in zip(value.shape[2:], node.outputs[0].shape[2:], strict=True)]
    return _padded(node, spatial) if node.name in ("pad", "constant_pad_nd") else None


def _convolved(node: Node, value: Value, spatial: int) -> list[Line] | None:
    if node.argument(0, "input") is not value:
        return None
    kernel = node.argument(1, "weight").shape[2:]
    stride = per_axis(node.argument(3, "stride", 1), spatial)
    dilation = per_axis(node.argument(5, "dilation", 1), spatial)
    padding = node.argument(4, "padding", 0)
    if padding == "same":
        before = [d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True)]
    else:
        before = per_axis(0 if padding == "valid" else padding, spatial)
    return _windows(kernel, stride, before, dilation)


def _pooled(node: Node, spatial: int) -> list[Line]:
    kernel = node.argument(1, "kernel_size")
    stride = node.argument(2, "stride")
    dilation = node.argument(4, "dilation", 1) if node.name.startswith("max") else 1
    return _windows(
        per_axis(kernel, spatial),
        per_axis(kernel if stride is None or stride == [] else stride, spatial),
        per_axis(node.argument(3, "padding", 0), spatial),
        per_axis(dilation, spatial),
    )


def _windows(
    kernel: Sequence[int], stride: Sequence[int], before: Sequence[int], dilation: Sequence[int]
) -> list[Line]:
    """A window's middle: half a kernel behind its start, which the padding pulls forward."""
    return [Line(float(s), d * (k - 1) / 2 - p) for k, s, p, d in zip(kernel, stride, before, dilation, strict=True)]


def _padded(node: Node, spatial: int) -> list[Line] | None:
    pads = list(node.argument(1, "pad"))
    if len(pads) > 2 * spatial and any(pads[2 * spatial :]):
        return None
    # torch counts from the last axis: (left, right, top, bottom).
    before = [pads[2 * i] if 2 * i < len(pads) else 0 for i in range(spatial)]
    return [Line(1.0, -float(p)) for p in reversed(before)]


def cells_of_places(
    sizes: Sequence[int], counts: Sequence[int], lines: Sequence[Line], device: torch.device
) -> Int[Tensor, "..."]:
    """The cell of every place of a map of `sizes`, numbered in reading order over a map of `counts` cells."""
    cell = torch.zeros([1] * len(sizes), dtype=torch.long, device=device)
    for axis, (size, count, line) in enumerate(zip(sizes, counts, lines, strict=True)):
        shape = [-1 if i == axis else 1 for i in range(len(sizes))]
        cell = cell * count + line.nearest(size, count, device).view(shape)
    return cell
