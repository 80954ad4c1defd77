"""How a model looks the explained text up: once or several times, in one table of embeddings or in more."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from lrptrain.relevance.tape.lookup import AnotherTable, Lookup, Order, Table, first_lookup, later_lookup, lookup_in
from lrptrain.relevance.tape.nodes import map_nested, shares_memory, tensors_in, version_of
from lrptrain.relevance.types import UnsupportedModelError

# As many ids, from 0 on, tell whether a hash of them is a constant.
_SAMPLED_IDS = 1 << 16


@dataclass(eq=False)
class TextLookups:
    """What a pass has looked up of the explained text, and of what may hold the same numbers.

    Attributes:
        ids: The integer input of which the embedding is the explained input, or None where no text is explained.
        others: The model's other arguments: what looks them up reads them, also where they hold the same numbers.
        tables: The tables in which the text is looked up, if it is more than the one.
        has_decoder: Whether the text is read a second time, one token later.
        others_read: What was looked up of the other arguments, and the weights in which.
    """

    ids: Tensor | None = None
    others: tuple[Tensor, ...] = ()
    tables: tuple[Table, ...] = ()
    has_decoder: bool = field(default=False, init=False)
    others_read: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        # The weight in which the text was looked up.
        self._table: Tensor | None = None
        # Numbers that were computed of each token id by itself, by the id of the tensor; and what other ids give there.
        self._hashes: dict[int, tuple[TensorWeakRef, int, Tensor]] = {}
        # Of several tables, those in which this pass has looked the text up.
        self._tables_read: list[Tensor] = []

    def of(self, looked_up: Tensor, table: Tensor, is_first: bool) -> Lookup | None:
        """How a lookup reads the explained text, or None if it reads something else."""
        if shares_memory(looked_up, self.others):  # another argument, though it may hold the same words
            self.others_read.append((looked_up, table))
            return None
        assert self.ids is not None
        lookup = None
        if self.tables:
            self._table = self.tables[0].weight
            lookup = lookup_in(self.tables, self.ids, looked_up, table)
            if lookup is not None:
                self._tables_read.append(table)
        elif is_first:
            lookup = first_lookup(self.ids, looked_up)
            self._table = None if lookup is None else table
        lookup = lookup or (None if is_first else self._later(looked_up, table))
        if lookup is None and self._is_hash(looked_up):
            raise AnotherTable((*self._known_tables, Table(table, looked_up)))
        self.has_decoder |= lookup is not None and lookup.order is Order.SHIFTED
        return lookup

    def _later(self, looked_up: Tensor, table: Tensor) -> Lookup | None:
        """How a second lookup reads the explained text once more."""
        if self._table is None or self.ids is None:
            return None
        known_tables = self._known_tables
        if all(each.ids is not None for each in known_tables):
            # So far, hashes of the text were looked up; its words may come behind them, in any order.
            lookup = first_lookup(self.ids, looked_up)
        elif looked_up is not self.ids and table.shape[0] != self._table.shape[0]:
            # Position ids may hold the numbers of token ids, but are looked up in a table of another size.
            return None
        else:
            lookup = later_lookup(self.ids, looked_up)
        if lookup is not None and not any(table is each.weight for each in known_tables):
            # The explained embeddings have to begin anew, with columns of this table.
            raise AnotherTable((*known_tables, Table(table)))
        return lookup

    @property
    def _known_tables(self) -> tuple[Table, ...]:
        """The tables in which the text was looked up so far, in this pass or in those before."""
        return self.tables or (() if self._table is None else (Table(self._table),))

    def check(self) -> None:
        """Notice a table of which the explained embeddings have columns that nobody has read."""
        if any(all(entry.weight is not table for table in self._tables_read) for entry in self.tables):
            raise UnsupportedModelError(
                "the model looks its token ids up in several tables, in one of them in another order or shape "
                "(transposed, padded?); pass inputs_embeds where it takes them"
            )

    def reads_as_text(self, argument: Tensor) -> bool:
        """Whether the model looked another argument up as it did the explained text: in as large a table."""
        read = (other.shape[0] for ids, other in self.others_read if shares_memory(ids, (argument,)))
        return self._table is not None and self._table.shape[0] in read

    def note_hash(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Note numbers that are computed of each token id by itself."""
        ids = self.ids
        if ids is None or not isinstance(result, Tensor) or result.shape != ids.shape or result.is_floating_point():
            return
        # The same call for other ids: the ids of this text might give one number where others do not.
        samples = {id(x): self._sample_of(x) for x in tensors_in((args, kwargs))}
        if samples and all(sample is not None for sample in samples.values()):
            args, kwargs = map_nested((args, kwargs), Tensor, lambda x: samples[id(x)])
            self._hashes[id(result)] = (TensorWeakRef(result), version_of(result), function(*args, **kwargs))

    def _sample_of(self, tensor: Tensor) -> Tensor | None:
        """What ids of all sizes give in the place of the token ids, or None if the tensor is not made of them."""
        if tensor is self.ids:
            count = min(_SAMPLED_IDS, torch.iinfo(tensor.dtype).max)
            return torch.arange(count, dtype=tensor.dtype, device=tensor.device)
        reference, version, sample = self._hashes.get(id(tensor), (None, 0, None))
        # A copy into which the model writes, as decoders shift their ids, is no longer made of each id by itself.
        is_current = reference is not None and reference() is tensor and version_of(tensor) == version
        return sample if is_current else None

    def _is_hash(self, tensor: Tensor) -> bool:
        """Whether numbers tell token ids apart: `ids * 0`, the segment of a text that has but one, does not."""
        if tensor is self.ids:
            return False
        sample = self._sample_of(tensor)
        return sample is not None and bool((sample != sample[0]).any())
