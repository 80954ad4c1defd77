"""How the token ids that a model looks up hold those of the explained text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


class Order(Enum):
    """Where the text stands among what is looked up."""

    SAME = "as it was given"
    TRANSPOSED = "tokens first, then samples"
    PADDED = "with more tokens behind it"
    FLATTENED = "in reading order, several texts of a sample as samples of their own, say"
    SHIFTED = "behind a start token, without its last token"


@dataclass(frozen=True)
class Lookup:
    """A lookup of the explained text.

    Attributes:
        order: Where the text stands among what is looked up.
        shape: That of the explained token ids.
        columns: Where several tables were looked up, the first and the last but one of this table's columns.
    """

    order: Order
    shape: torch.Size
    columns: tuple[int, int] | None = None

    def taken(self, embedded: Float[Tensor, "..."]) -> Float[Tensor, "batch tokens width"]:
        """The text's embeddings out of all that were looked up."""
        if self.order is Order.TRANSPOSED:
            return embedded.transpose(0, 1)
        if self.order is Order.PADDED:
            return embedded[:, : self.shape[1]]
        if self.order is Order.FLATTENED:
            return embedded.reshape(self.shape[0], -1, embedded.shape[-1])
        return embedded

    def given(
        self, explained: Float[Tensor, "batch tokens width"], embedded: Float[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """What the model reads in place of what it looked up, made of the text's embeddings."""
        if self.columns is not None:
            explained = explained[..., slice(*self.columns)]
        if self.order is Order.TRANSPOSED:
            return explained.transpose(0, 1)
        if self.order is Order.PADDED:
            return torch.cat([explained, embedded[:, self.shape[1] :]], 1)
        if self.order is Order.FLATTENED:
            return explained.reshape(embedded.shape)
        if self.order is Order.SHIFTED:
            return torch.cat([embedded[:, :1], explained[:, :-1]], 1)
        return explained


@dataclass(frozen=True, eq=False)
class Table:
    """A table of embeddings in which the explained text is looked up, beside others.

    Attributes:
        weight: The table.
        ids: Numbers that the model computes of each token id by itself (hashes), or None for the token ids.
    """

    weight: Float[Tensor, "rows width"]
    ids: Int[Tensor, "batch tokens"] | None = None


class AnotherTable(Exception):  # noqa: N818
    """The text is looked up in more tables than were known when the pass began, which has to begin again.

    The explained embeddings are then what all tables say of a token, one behind the other.
    """

    def __init__(self, tables: tuple[Table, ...]):
        super().__init__()
        self.tables = tables


def embedded_in(tables: Sequence[Table], ids: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens width"]:
    """What the tables say of each token, one behind the other."""
    return torch.cat([F.embedding(ids if table.ids is None else table.ids, table.weight) for table in tables], -1)


def lookup_in(
    tables: Sequence[Table], ids: Int[Tensor, "batch tokens"], looked_up: Int[Tensor, "..."], weight: Tensor
) -> Lookup | None:
    """How a lookup in one of several tables reads the text, or None if it reads something else."""
    start = 0
    for table in tables:
        end = start + table.weight.shape[1]
        if table.weight is weight:
            lookup = later_lookup(ids, looked_up) if table.ids is None else first_lookup(table.ids, looked_up)
            return None if lookup is None else replace(lookup, columns=(start, end))
        start = end
    return None


def lookup_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The ids and the table of a call of `torch.nn.functional.embedding`."""
    ids = args[0] if args else kwargs["input"]
    table = args[1] if len(args) > 1 else kwargs["weight"]
    return ids, table


def first_lookup(ids: Int[Tensor, "batch ..."], looked_up: Int[Tensor, "..."]) -> Lookup | None:
    """How a lookup reads the text, or None if it reads something else."""
    order = _order(ids, looked_up)
    return None if order is None else Lookup(order, ids.shape)


def _order(ids: Tensor, looked_up: Tensor) -> Order | None:
    if looked_up is ids or (looked_up.shape == ids.shape and _equal(looked_up, ids)):
        return Order.SAME
    if ids.ndim == 2 and looked_up.shape == ids.shape[::-1] and _equal(looked_up, ids.t()):
        return Order.TRANSPOSED
    if looked_up.numel() == ids.numel() and looked_up.ndim <= ids.ndim and _equal(looked_up.flatten(), ids.flatten()):
        return Order.FLATTENED
    if ids.ndim != 2 or looked_up.ndim != 2 or looked_up.shape[0] != ids.shape[0]:
        return None
    tokens = ids.shape[1]
    return Order.PADDED if looked_up.shape[1] > tokens and _equal(looked_up[:, :tokens], ids) else None


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether both hold the same numbers, in any integer type."""
    return one.device == other.device and bool((one == other).all())


def later_lookup(ids: Int[Tensor, "batch tokens"], looked_up: Int[Tensor, "..."]) -> Lookup | None:
    """How a later lookup in the same table reads the text once more, as the decoder of a classifier does."""
    if looked_up.shape != ids.shape or ids.ndim != 2:
        return None
    if looked_up is ids or _equal(looked_up, ids):
        return Lookup(Order.SAME, ids.shape)
    shifted = ids.shape[1] > 1 and _equal(looked_up[:, 1:], ids[:, :-1])
    return Lookup(Order.SHIFTED, ids.shape) if shifted else None


READING_ROWS = frozenset({"embedding_bag", "getitem", "index_select", "gather", "matmul", "mm", "linear"})
"""Calls that may look up rows of a table in other words than `embedding`; see `as_lookup`."""

# -- Lookups in other words --------------------------------------------------------------------------------------------


def as_lookup(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_first: bool
) -> Callable[[], Tensor] | None:
    """How a call that reads rows of a table reads them by `F.embedding`; None if it reads none.

    Args:
        name: Of the operation: `table[ids]`, `index_select`, `gather`, a product with a one-hot matrix, or
            `embedding_bag`.
        args: Its arguments.
        kwargs: Its arguments by name.
        is_first: Whether no text was looked up so far, so that the table may be a buffer as well as a parameter.
    """
    if name == "embedding_bag":
        return partial(explicit_embedding_bag, *args, **kwargs)
    if kwargs or len(args) < 2:
        return None
    first, second = args[:2]
    if name in ("getitem", "index_select"):
        ids: Any = second if name == "getitem" else args[2] if second == 0 else None
        if _is_table(first, is_first) and _are_rows(ids):
            return partial(F.embedding, ids, first)
    elif name == "gather":
        rows = _rows_gathered(*args) if len(args) == 3 and _is_table(first, is_first) else None
        if rows is not None:
            return partial(F.embedding, rows, first)
    elif name in ("matmul", "mm", "linear") and _may_be_one_hot(first):
        # `linear(x, table.T)` reads the rows of the table, `linear(x, weight)` the columns of a weight.
        transposed = _transposed_of(second)
        table = second if transposed is None else transposed if name == "linear" else second
        if not _is_table(table, is_first):
            return None
        table = table.t() if name == "linear" and transposed is None else table
        bias = args[2] if len(args) > 2 else None
        if first.shape[-1:] == table.shape[:1] and _is_one_hot(first):
            ids = first.argmax(-1)
            return lambda: F.embedding(ids, table) if bias is None else F.embedding(ids, table) + bias
    return None


def _is_table(x: Any, is_first: bool) -> bool:
    """Whether these may be the embeddings of a vocabulary: numbers that no operation of the model has made."""
    if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point() or x.grad_fn is not None:
        return False
    return is_first or isinstance(x, nn.Parameter)


def _transposed_of(x: Any) -> Tensor | None:
    """The table that a tensor shows with its rows as columns, or None."""
    base = x._base if isinstance(x, Tensor) and x.ndim == 2 else None
    if base is None or base.ndim != 2 or x.data_ptr() != base.data_ptr() or x.stride() != base.t().stride():
        return None
    return base if x.shape == base.t().shape else None


def _rows_gathered(table: Tensor, axis: Any, index: Any) -> Tensor | None:
    """The ids of whole rows that `gather` reads; None if it reads single entries."""
    if axis not in (0, -2) or not _are_rows(index) or index.ndim != 2 or index.shape[1] != table.shape[1]:
        return None
    ids: Tensor = index[:, 0]
    return ids if index.stride(1) == 0 or bool((index == ids[:, None]).all()) else None


def _are_rows(ids: Any) -> bool:
    """Whether an index chooses whole rows, counted from the first."""
    whole = isinstance(ids, Tensor) and ids.ndim > 0 and ids.dtype in (torch.int32, torch.int64)
    return whole and ids.numel() > 0 and int(ids.amin()) >= 0


def _may_be_one_hot(x: Any) -> bool:
    if not isinstance(x, Tensor) or x.grad_fn is not None or not x.is_floating_point():
        return False
    return x.ndim > 1 and x.numel() > 0


def _is_one_hot(x: Tensor) -> bool:
    return bool(((x == 0) | (x == 1)).all()) and bool((x.sum(-1) == 1).all())


def explicit_embedding_bag(
    input: Int[Tensor, "..."],
    weight: Float[Tensor, "rows width"],
    offsets: Int[Tensor, " bags"] | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Float[Tensor, "..."] | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Float[Tensor, "bags width"]:
    """Compute `F.embedding_bag` as a lookup, and a sum, mean or maximum over the words of each bag."""
    words = F.embedding(input, weight, None, max_norm, norm_type)
    is_word = torch.ones_like(input, dtype=torch.bool) if padding_idx is None else input != padding_idx
    shares = per_sample_weights
    if offsets is not None:  # one behind the other: as rows of words, with padding
        ends = offsets[1:] if include_last_offset else torch.cat([offsets[1:], offsets.new_tensor([len(input)])])
        starts = offsets[: len(ends)]
        place = starts[:, None] + torch.arange(int((ends - starts).amax()), device=input.device)
        place = place.masked_fill(place >= ends[:, None], len(input))
        words, is_word = (torch.cat([x, x.new_zeros(1, *x.shape[1:])])[place] for x in (words, is_word))
        shares = None if shares is None else torch.cat([shares, shares.new_zeros(1)])[place]
    if mode == "max":
        largest = words.masked_fill(~is_word[..., None], -torch.inf).amax(1)
        return largest.masked_fill(~is_word.any(1, keepdim=True), 0.0)
    if shares is not None:
        words = words * shares[..., None]
    total = (words if bool(is_word.all()) else words * is_word[..., None]).sum(1)
    return total if mode == "sum" else total / is_word.sum(1, keepdim=True).clamp(min=1)
