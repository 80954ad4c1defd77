"""How many rows a sample has."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.call import ROWS
from lrptrain.batch.rows import beside_rows, present_rows, row_masks, rows_in
from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.rows import at_share


@dataclass(frozen=True)
class RowCount(Cue):
    """How many rows there are: a sample gets as many as its source has, of its own, evenly left out or given again."""

    kind: ClassVar[str] = "row count"
    name: str = "the number of rows"
    role: Role = "unreviewed"

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`."""
        shape = rows_in(batch).shape[:2]
        there = present_rows(batch).cpu()
        own = [row.nonzero().flatten() for row in there]
        wanted = present_rows(sources).sum(1).tolist()
        taken_from = torch.zeros(shape, dtype=torch.long)
        filled = torch.zeros(shape, dtype=torch.bool)
        for row, (places, count) in enumerate(zip(own, wanted, strict=True)):
            taken_from[row, :count] = places[[at_share(i, len(places), count) for i in range(count)]]
            filled[row, :count] = True
        taken_from, filled = taken_from.to(rows_in(batch).device), filled.to(rows_in(batch).device)
        masks = row_masks(batch)
        result = dict(batch)
        for name in beside_rows(batch):
            values: Tensor = batch[name]
            taken = values[torch.arange(len(values), device=values.device)[:, None], taken_from]
            absent = ~filled.view(*filled.shape, *[1] * (values.ndim - 2))
            result[name] = taken.masked_fill(absent, IGNORED if name == "rationale" else 0)
            if name in masks:
                result[name] = (filled != masks[name][:, None]).to(values.dtype)
        # What the model is told to leave out may continue behind the rows; what it is not told of may not.
        lengths = filled.sum(1)
        if masks and ROWS in batch:
            lengths = torch.maximum(lengths, batch[ROWS].sum(1))
        if ROWS in batch or (not masks and bool((lengths < shape[1]).any())):
            result[ROWS] = torch.arange(shape[1], device=filled.device) < lengths[:, None]
        return result
