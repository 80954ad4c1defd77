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

from lrptrain.relevance.types import UnsupportedModelError


class Order(Enum):
    """Where the text stands among what is looked up."""

    SAME = "as it was given"
    TRANSPOSED = "tokens first, then samples"
    PADDED = "with more tokens behind it"
    FLATTENED = "in reading order, several texts of a sample as samples of their own, say"
    SHIFTED = "behind a start token, without its last token"


@dataclass(frozen=True)
class Lookup:
    """A lookup of the explained text."""

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
        """What the model is given in place of what it looked up, made of the text's embeddings."""
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
    """A table of embeddings in which the explained text is looked up, beside others."""

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


_PRODUCTS = frozenset({"matmul", "mm", "linear"})
READING_ROWS = _PRODUCTS | {"getitem", "index_select", "embedding_bag", "gather", "one_hot"}
"""Calls that may look up rows of a table in other words than `embedding`; see `as_lookup`."""

# -- Lookups in other words --------------------------------------------------------------------------------------------


def as_lookup(name: str, args: tuple[Any, ...], ids: Tensor, *, is_first: bool) -> Callable[[], Tensor] | None:
    """How `table[ids]` or `index_select` reads rows of a table by `F.embedding`; None if a call reads none."""
    if len(args) < 2:
        return None
    first, second = args[:2]
    if name in ("getitem", "index_select"):
        rows: Any = second if name == "getitem" else args[2] if second == 0 and len(args) > 2 else None
        return partial(F.embedding, rows, first) if _is_table(first, is_first) and _are_rows(rows) else None
    if name in _PRODUCTS:
        reads = _is_one_hot(first, ids)
    elif name == "gather":
        reads = isinstance(first, nn.Parameter) and second in (0, -2) and first.ndim == 2
    else:
        reads = _holds(first, ids)
    if reads:
        raise UnsupportedModelError(
            f"the model looks its token ids up by {name}: look them up with nn.Embedding, or pass inputs_embeds where "
            "it takes them"
        )
    return None


def _holds(x: Any, ids: Tensor) -> bool:
    return isinstance(x, Tensor) and x.numel() == ids.numel() and _equal(x.flatten(), ids.flatten())


def _is_one_hot(x: Any, ids: Tensor) -> bool:
    """Whether the only 1 of each row stands where an id says."""
    if not isinstance(x, Tensor) or x.grad_fn is not None or x.ndim < 2 or x.shape[:-1].numel() != ids.numel():
        return False
    return _holds(x.argmax(-1), ids) and bool(((x == 0) | (x == 1)).all()) and bool((x.sum(-1) == 1).all())


def _is_table(x: Any, is_first: bool) -> bool:
    """Whether these may be the embeddings of a vocabulary: numbers that no operation of the model has made."""
    if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point() or x.grad_fn is not None:
        return False
    return is_first or isinstance(x, nn.Parameter)


def _are_rows(ids: Any) -> bool:
    """Whether an index chooses whole rows, counted from the first."""
    whole = isinstance(ids, Tensor) and ids.ndim > 0 and ids.dtype in (torch.int32, torch.int64)
    return whole and ids.numel() > 0 and int(ids.amin()) >= 0
