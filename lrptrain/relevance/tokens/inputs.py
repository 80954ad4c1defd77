"""What is explained: the kinds of input, which parts of it are tokens, and how numbers go from one to the other."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tokens.cells import Cells, by_sample, find_cells
from lrptrain.relevance.tokens.geometry import cells_of_places, entry_numbers, even_line, moved_from
from lrptrain.relevance.types import TokenLayout, UnsupportedModelError

Kind = Literal["text", "image", "video", "waveform", "spectrogram", "sequence", "table"]


@dataclass(frozen=True, eq=False)
class ExplainedInput:
    """The explained input of a recording: what its axes mean, and which token each of its places belongs to.

    A place is an entry of the axes that are neither samples nor features: a pixel, a sample of a waveform, a word.

    | kind | shape | features | tokens | `Relevance.input` |
    | --- | --- | --- | --- | --- |
    | text | `[batch, tokens, width]` | width | positions | all |
    | image | `[batch, channels, height, width]`, channels anywhere | channels | patches | `[batch, height, width]` |
    | video | `[batch, frames, channels, height, width]` | channels | tubes | `[batch, frames, height, width]` |
    | waveform | `[batch, samples]` | - | frames of the encoder | all |
    | spectrogram, read by `conv1d` | `[batch, bins, time]` | bins | steps of the encoder | all |
    | spectrogram, read by `conv2d` | `[batch, time, bins]` | - | patches | all |
    | sequence | `[batch, patches, numbers]`, `[batch, steps, bins]` | numbers | patches, steps | all |
    | table | `[batch, columns]` | - | columns | all |

    Attributes:
        kind: Which of these it is.
        shape: Its shape.
        features: The axes that a token's score is a sum over.
        owner: The token of every place, `tokens` where there is none, for places in reading order.
        tokens: Number of tokens.
        grid: Tokens as (rows, columns), (frames, rows, columns), or None.
        cells: The values that tokens are made of, or None where the forward pass has none.
        order: The cell of every token.
    """

    kind: Kind
    shape: torch.Size
    features: tuple[int, ...]
    owner: Int[Tensor, " places"]
    tokens: int
    grid: tuple[int, ...] | None = None
    cells: Cells | None = None
    order: Int[Tensor, " tokens"] | None = None

    @property
    def place_axes(self) -> tuple[int, ...]:
        """The axes that are neither samples nor features."""
        return tuple(axis for axis in range(1, len(self.shape)) if axis not in self.features)

    def scores(self, relevance: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch tokens"]:
        """Sum relevance of the input over the places and features of every token."""
        places = self._without_features(relevance).flatten(1)
        sums = places.new_zeros(len(places), self.tokens + 1)
        return sums.index_add(1, self.owner, places)[:, : self.tokens]

    def map(self, relevance: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """What `Relevance.input` holds: relevance of the input, the colours of images and videos summed."""
        return self._without_features(relevance) if self.kind in ("image", "video") else relevance

    def _without_features(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        return x.sum(self.features) if self.features else x

    def at_places(self, of_tokens: Shaped[Tensor, "rows tokens"], elsewhere: float) -> Shaped[Tensor, "rows ..."]:
        """Give every place the value of its token, shaped to broadcast against the input."""
        beyond = of_tokens.new_full((len(of_tokens), 1), elsewhere)
        places = torch.cat([of_tokens, beyond], 1)[:, self.owner]
        shape = [1 if axis in self.features else size for axis, size in enumerate(self.shape)]
        return places.view(len(of_tokens), *shape[1:])

    def content(self, mask: Shaped[Tensor, "batch ..."]) -> Bool[Tensor, "batch tokens"] | None:
        """Bring a mask of the input's places, or of its tokens, to one number per token: whether any of it is content.

        Args:
            mask: Not 0 at content; of the shape `[batch, tokens]`, of the shape of the places, or along one axis.

        Returns:
            None if it has another shape.
        """
        sizes = [self.shape[axis] for axis in self.place_axes]
        if mask.ndim == 2 and mask.shape[1] == self.tokens and sizes[0] == self.tokens:
            return mask != 0
        if list(mask.shape[1:]) != sizes:
            along = [i for i, size in enumerate(sizes) if mask.ndim == 2 and size == mask.shape[1]]
            if len(along) != 1:
                return None
            mask = mask.view(len(mask), *[-1 if i == along[0] else 1 for i in range(len(sizes))])
        places = (mask != 0).expand(len(mask), *sizes).flatten(1)
        counts = torch.zeros(len(mask), self.tokens + 1, device=mask.device)
        return counts.index_add(1, self.owner, places.to(counts.dtype))[:, : self.tokens] > 0


def explained_input(
    propagator: Propagator, layout: TokenLayout | None = None, block: Value | None = None
) -> ExplainedInput:
    """Find out what the explained input is, by what the first operations make of it."""
    root = propagator.root
    if propagator.tape.token_ids is not None:
        return text_input(root)
    cells = find_cells(propagator, block)
    kind = _kind(root, cells)
    if cells is not None:
        explained = _of_cells(propagator, root, cells, kind)
        if explained.tokens > 1 or len(root.shape) == 3:
            return explained if layout is None or layout.grid is None else _regular(explained, layout.grid)
    if len(root.shape) == 2:
        return _every_place(root, kind="table", features=(), grid=None)
    if len(root.shape) == 3:
        return _rows(root, "sequence")
    return _unstructured(root, kind, layout)


def _kind(root: Value, cells: Cells | None) -> Kind:
    ndim = len(root.shape)
    if ndim == 2:
        return "table" if cells is None else "waveform"
    if ndim == 3:
        return "sequence" if cells is None or not cells.lines else "spectrogram"
    return "image" if ndim == 4 else "video"


def text_input(root: Value) -> ExplainedInput:
    """The word embeddings of a text, or of its chunks, one behind the other: every position is a token."""
    if len(root.shape) > 3:
        return _every_place(root, kind="text", features=(len(root.shape) - 1,), grid=None)
    return _rows(root, "text")


def untold_input(root: Value, layout: TokenLayout | None) -> ExplainedInput:
    """What an input is of a model whose operations nobody sees: columns, rows, or an image cut as the layout says."""
    if len(root.shape) == 2:
        return _every_place(root, kind="table", features=(), grid=None)
    if len(root.shape) == 3:
        return _rows(root, "sequence")
    if layout is None or layout.grid is None:
        raise UnsupportedModelError(
            "the model is TorchScript or quantised, and nothing tells which pixels make a token: pass "
            "layout=lrptrain.TokenLayout(rows * columns, tuple(range(rows * columns)), (rows, columns))"
        )
    return _unstructured(root, "image" if len(root.shape) == 4 else "video", layout)


def _rows(root: Value, kind: Kind) -> ExplainedInput:
    """One token per entry of the first axis behind the batch."""
    tokens = root.shape[1]
    numbers = torch.arange(tokens, device=root.tensor.device)
    cells = Cells(root, 2, root) if len(root.shape) == 3 else None
    return ExplainedInput(kind, root.shape, tuple(range(2, len(root.shape))), numbers, tokens, None, cells, numbers)


def _every_place(root: Value, kind: Kind, features: tuple[int, ...], grid: tuple[int, ...] | None) -> ExplainedInput:
    """One token per place."""
    count = root.shape[1:].numel()
    for axis in features:
        count //= root.shape[axis]
    return ExplainedInput(kind, root.shape, features, torch.arange(count, device=root.tensor.device), count, grid)


def _unstructured(root: Value, kind: Kind, layout: TokenLayout | None) -> ExplainedInput:
    """An image or a video that no convolution and no layer of patches reads: a token per pixel, or the given grid."""
    channels = _channel_axis(root.shape)
    if channels is None and layout is not None and layout.grid is not None:
        channels = 1
    if channels is None or len(root.shape) > 5:
        raise UnsupportedModelError(
            f"nothing tells which axis of the input {list(root.shape)} holds channels and which of its parts are "
            "tokens; pass layout=TokenLayout(length, positions, grid) for channels in axis 1"
        )
    grid = tuple(size for axis, size in enumerate(root.shape) if axis not in (0, channels))
    pixels = _every_place(root, kind, (channels,), grid)
    return pixels if layout is None or layout.grid is None else _regular(pixels, layout.grid)


def _channel_axis(shape: torch.Size) -> int | None:
    """The one axis of one or three entries, if it is where models have channels."""
    axes = [axis for axis in {1, len(shape) - 3, len(shape) - 1} if shape[axis] in (1, 3)]
    return axes[0] if len(axes) == 1 else None


def _regular(explained: ExplainedInput, grid: tuple[int, ...]) -> ExplainedInput:
    """The same input with another grid, of cells of equal size."""
    sizes = [explained.shape[axis] for axis in explained.place_axes]
    if len(grid) != len(sizes):
        raise ValueError(f"layout.grid must have {len(sizes)} numbers for an input {list(explained.shape)}, not {grid}")
    lines = [even_line(size, cells) for size, cells in zip(sizes, grid, strict=True)]
    owner = cells_of_places(sizes, grid, lines, explained.owner.device).flatten()
    tokens = torch.Size(grid).numel()
    return replace(explained, owner=owner, tokens=tokens, grid=grid, order=None)


def with_sizes(explained: ExplainedInput, sizes: object) -> ExplainedInput:
    """Give patches the grid that the model was given their sizes for, if it is the same in all samples.

    Args:
        explained: The explained input.
        sizes: (rows, columns) of every sample, `[batch, 2]`, as SigLIP 2 takes them; all else is left alone.
    """
    if explained.kind != "sequence" or not isinstance(sizes, Tensor) or sizes.shape != (explained.shape[0], 2):
        return explained
    grid = tuple(sizes[0].tolist())
    is_shared = bool((sizes == sizes[0]).all()) and torch.Size(grid).numel() == explained.tokens
    return replace(explained, grid=grid) if is_shared else explained


# -- The places of cells -----------------------------------------------------------------------------------------------


# An image may have millions of entries, of which several numbers each are needed: so many are looked at together, and
# an eighth of all at most.
_AT_A_TIME = 1 << 17


def _in_parts(x: Tensor) -> tuple[Tensor, ...]:
    """Some of the last axis at a time."""
    return x.chunk(max(8, math.ceil(x.numel() / _AT_A_TIME)), -1)


@dataclass(frozen=True, eq=False)
class _Entries:
    """Of the first sample: which entry of the input stands at each place of `cells.start`, and in which cell it is.

    Attributes:
        numbers: The number of the entry from 1 on, 0 where there is none. Whole numbers.
        cell: The cell of every place.
    """

    numbers: Float[Tensor, "lead width *places"]
    cell: Int[Tensor, "lead width *places"]

    def parts(self) -> Iterator[tuple[Int[Tensor, "lead width *part"], Int[Tensor, "..."]]]:
        """The numbers and their cells, some of the last axis at a time."""
        precision = torch.int32 if float(self.numbers.max()) < torch.iinfo(torch.int32).max else torch.int64
        for numbers, cell in zip(_in_parts(self.numbers), _in_parts(self.cell), strict=True):
            yield numbers.to(precision), cell


def _of_cells(propagator: Propagator, root: Value, cells: Cells, kind: Kind) -> ExplainedInput:
    """Follow the entries of one sample from the input to the cells."""
    entries = _entries(propagator, root, cells)
    count = cells.value.shape.numel() // (propagator.samples * cells.value.shape[cells.channels])
    device = entries.numbers.device
    order = torch.arange(count, device=device)
    if not cells.lines:  # a row without entries is a token that the model puts beside them
        is_read = (entries.numbers > 0).any(1)
        order = order[is_read]
        renumbered = torch.cumsum(is_read, 0)[:, None] - 1
        entries = replace(entries, cell=renumbered.expand_as(entries.numbers))
        count = len(order)
    features = _feature_axes(root, cells, entries)
    places = [int(x) for x in root.shape[1:]]
    place_axes = [i for i in range(len(places)) if i + 1 not in features]
    owner = torch.full((torch.Size([places[i] for i in place_axes]).numel(),), count, device=device)
    for numbers, cell in entries.parts():
        place = torch.zeros_like(numbers)
        for i in place_axes:
            place.mul_(places[i]).add_(_coordinate(numbers, places, i))
        if bool(numbers.amin() > 0):
            owner[place.flatten().long()] = cell.flatten()
            continue
        is_entry = numbers > 0
        owner[place[is_entry].long()] = cell[is_entry]
    grid = _own_grid(cells) if kind in ("spectrogram", "image", "video") else None
    if len(place_axes) == 1 or len(root.shape) > 3:
        reading, grid = _reading_order(owner, [places[i] for i in place_axes], count, grid)
        rank = torch.cat([torch.argsort(reading), torch.tensor([count], device=device)])
        for part in _in_parts(owner):
            part.copy_(rank[part])
        order = order[reading]
    return ExplainedInput(kind, root.shape, features, owner, count, grid, cells, order)


def _coordinate(numbers: Int[Tensor, "*entries"], sizes: Sequence[int], axis: int) -> Int[Tensor, "*entries"]:
    """Where entries of one sample, numbered from 1 on, are along one of its axes."""
    behind = math.prod(sizes[axis + 1 :])
    return (numbers - 1).clamp_(min=0).div_(behind, rounding_mode="floor").remainder_(sizes[axis])


def _entries(propagator: Propagator, root: Value, cells: Cells) -> _Entries:
    """The entries of the first sample."""
    start = cells.start
    numbers = entry_numbers(moved_from(propagator.tape.nodes, root), start)
    if not cells.lines:
        rows = by_sample(propagator, start, cells.channels, numbers)[0]
        cell = torch.arange(len(rows), device=rows.device)[:, None].expand_as(rows)
        entries = _Entries(rows, cell)
    else:
        # Frames may have become samples: all those of the first sample, in their order.
        first = by_sample(propagator, start, 1, numbers)
        leads = first.shape[1] // start.shape[2:].numel()
        maps = first[0].view(leads, *start.shape[2:], start.shape[1]).movedim(-1, 1)
        counts = cells.value.shape[2:]
        cell = cells_of_places(start.shape[2:], counts, cells.lines, maps.device).expand(leads, 1, *start.shape[2:])
        if leads > 1:
            cell = cell + counts.numel() * torch.arange(leads, device=maps.device).view(-1, *[1] * (maps.ndim - 1))
        entries = _Entries(maps, cell.expand_as(maps))
    lowest, highest = entries.numbers.aminmax()
    if not (lowest >= 0 and highest <= root.shape[1:].numel()):
        raise UnsupportedModelError(
            "the input's samples are mixed before the model takes them; pass layout=TokenLayout(length, positions, "
            "grid) and a batch of one"
        )
    return entries


def _feature_axes(root: Value, cells: Cells, entries: _Entries) -> tuple[int, ...]:
    """The axes of the input that its features lie along."""
    test = _along_channels if cells.lines else _complete_in_every_cell
    sizes = root.shape[1:]
    axes = [axis + 1 for axis in range(len(sizes)) if test(entries, sizes, axis)]
    if len(root.shape) == 2:
        return ()
    if len(root.shape) == 3:
        return tuple(axes[-1:])
    # An image of one row of pixels has several axes that could be it: the one that has more than an entry is.
    several = [axis for axis in axes if root.shape[axis] > 1]
    chosen = several if several else axes
    if len(chosen) > 1:
        chosen = [axis for axis in chosen if axis == _channel_axis(root.shape)] or chosen
    if not chosen:
        raise UnsupportedModelError(
            f"no axis of the input {list(root.shape)} is read as channels; pass an image [batch, channels, height, "
            "width] or a video [batch, frames, channels, height, width]"
        )
    return (chosen[0],)


def _along_channels(entries: _Entries, sizes: Sequence[int], axis: int) -> bool:
    """Whether all places of a channel of the map hold entries of the same coordinate."""
    width = entries.numbers.shape[1]
    low = torch.full((width,), sizes[axis], device=entries.numbers.device)
    high = torch.full_like(low, -1)
    for numbers, _ in entries.parts():
        present = numbers.movedim(1, 0).flatten(1) > 0
        coordinate = _coordinate(numbers, sizes, axis).movedim(1, 0).flatten(1)
        low = torch.minimum(low, torch.where(present, coordinate, sizes[axis]).amin(1))
        high = torch.maximum(high, torch.where(present, coordinate, -1).amax(1))
        if bool((low < high).any()):
            return False
    return True


def _complete_in_every_cell(entries: _Entries, sizes: Sequence[int], axis: int) -> bool:
    """Whether every cell holds entries at all coordinates of the axis; not so if there are no entries at all."""
    cells, width = entries.numbers.shape
    if width < sizes[axis]:  # without a table of all cells and all coordinates, which grows with the square of a text
        return False
    held = torch.zeros(cells, sizes[axis], dtype=torch.bool, device=entries.numbers.device)
    for numbers, cell in entries.parts():
        is_entry = numbers > 0
        held[cell[is_entry], _coordinate(numbers, sizes, axis)[is_entry].long()] = True
    filled = int(entries.cell.max()) + 1
    return filled > 0 and bool(held[:filled].all())


def _own_grid(cells: Cells) -> tuple[int, ...] | None:
    sizes = tuple(cells.value.shape[2:])
    return sizes if len(cells.lines) > 1 else None


def _reading_order(
    owner: Int[Tensor, " places"], sizes: list[int], count: int, grid: tuple[int, ...] | None
) -> tuple[Int[Tensor, " tokens"], tuple[int, ...] | None]:
    """Sort cells by their first corner, and tell whether they form a grid.

    Returns:
        The cells in the order of their corners, and how many there are along every axis; the order as it is, and the
        given grid, where a cell holds no place.
    """
    first = [_first_corner(owner, sizes, axis, count) for axis in range(len(sizes))]
    if any(bool((corner == size).any()) for corner, size in zip(first, sizes, strict=True)):
        return torch.arange(count, device=owner.device), grid
    key = torch.zeros(count, dtype=torch.long, device=owner.device)
    for corner, size in zip(first, sizes, strict=True):
        key = key * size + corner
    counts = tuple(torch.unique(corner).numel() for corner in first)
    is_grid = len(sizes) > 1 and torch.Size(counts).numel() == count == torch.unique(key).numel()
    return torch.argsort(key, stable=True), counts if is_grid else None


def _first_corner(owner: Int[Tensor, " places"], sizes: Sequence[int], axis: int, count: int) -> Int[Tensor, " cells"]:
    """The lowest coordinate of the places of every cell along an axis; the axis' size where it has none."""
    behind = math.prod(sizes[axis + 1 :])
    lowest = torch.full((count + 1,), sizes[axis], device=owner.device)
    start = 0
    for part in _in_parts(owner):
        place = torch.arange(start, start + len(part), device=owner.device)
        lowest.scatter_reduce_(0, part, place.div_(behind, rounding_mode="floor").remainder_(sizes[axis]), "amin")
        start += len(part)
    return lowest[:count]
