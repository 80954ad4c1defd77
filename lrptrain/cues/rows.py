"""What cues of rows share: which rows are meant, and how a sample takes rows of its source."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.call import ARGUMENT
from lrptrain.batch.rows import beside_rows, present_rows, row_masks, rows_in
from lrptrain.cues.cue import Batch, Cue, Role

RowPart = Literal["rows", "outside", "evidence"]
"""All rows of a sample, those outside of the evidence, or the evidence."""
OF = {"rows": "", "outside": " outside the annotation", "evidence": " among the annotated ones"}


def is_annotated(batch: Batch) -> Bool[Tensor, " batch"]:
    """Return which samples have an annotation; one that marks no row says that all lie outside of the evidence."""
    return (_annotation(batch) != IGNORED).any(1)


def rows_of_part(where: RowPart, batch: Batch) -> Bool[Tensor, "batch rows"]:
    """Return which rows are meant, without padding."""
    there = present_rows(batch)
    if where == "rows":
        return there
    return there & (_annotation(batch) == (where == "evidence"))


def _annotation(batch: Batch) -> Tensor:
    rationale, rows = batch.get("rationale"), rows_in(batch)
    return rationale if isinstance(rationale, Tensor) else torch.full(rows.shape[:2], IGNORED, device=rows.device)


def at_share(place: int, count: int, of: int) -> int:
    """Return which of `count` places lies as far along as one of `of` places."""
    return place * count // of


def with_rows(batch: Batch, sources: Batch, taken_from: Int[Tensor, "batch rows"]) -> dict[str, Any]:
    """Return samples with rows of their sources, each with what the model is given beside it, and its annotation.

    Args:
        batch: The samples.
        sources: Their sources, padded to the same number of rows.
        taken_from: For every place the source's row that comes there; -1 where the sample keeps its own.
    """
    taken_from = taken_from.to(rows_in(batch).device)
    index = torch.arange(len(taken_from), device=taken_from.device)[:, None]
    result = dict(batch)
    masks = row_masks(batch)
    for name in beside_rows(batch):
        if name in masks or name not in sources or _counts_rows(name, batch[name]):
            continue
        taken = sources[name][index, taken_from.clamp(min=0)]
        is_taken = (taken_from >= 0).view(*taken_from.shape, *[1] * (batch[name].ndim - 2))
        result[name] = torch.where(is_taken, taken.to(batch[name].dtype), batch[name])
    return result


def _counts_rows(name: str, values: Tensor) -> bool:
    """Return whether an argument counts rows, as position ids do: it belongs to the place, and not to what is there."""
    return name.startswith(ARGUMENT) and values.ndim == 2 and bool((values.double().diff(dim=1) == 1).all())


@dataclass(frozen=True)
class Stretch(Cue):
    """Rows that stand in one stretch: a sample takes those of its source's, at the same share of the way along it."""

    name: str
    role: Role
    where: RowPart = "rows"

    @abstractmethod
    def stretch(self, count: int) -> range:
        """Return which of so many rows are meant."""

    def locate(self, batch: Batch) -> Bool[Tensor, "batch rows"]:
        """Return which rows it is."""
        counted = rows_of_part(self.where, batch)
        inside = torch.zeros_like(counted)
        for row, places in enumerate(self._places(counted)):
            inside[row, places] = True
        return inside

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`."""
        own, given = (self._places(rows_of_part(self.where, each)) for each in (batch, sources))
        taken_from = torch.full(rows_in(batch).shape[:2], -1)
        for row, (places, theirs) in enumerate(zip(own, given, strict=True)):
            if len(theirs):
                at = torch.arange(len(places)) * len(theirs) // max(len(places), 1)
                taken_from[row, places] = theirs[at]
        return with_rows(batch, sources, taken_from)

    def _places(self, counted: Bool[Tensor, "batch rows"]) -> list[Int[Tensor, " n"]]:
        places = [row.nonzero().flatten() for row in counted.cpu()]
        return [each[list(self.stretch(len(each)))] for each in places]
