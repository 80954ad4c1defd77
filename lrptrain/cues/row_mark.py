"""A kind of row: rows that look alike, wherever they stand, such as tumour patches in a bag of patches."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.batch.rows import grid_sizes, rows_in
from lrptrain.cues.association import association, distinct
from lrptrain.cues.cue import CANDIDATES, FEWEST, Batch, Cue, Role
from lrptrain.cues.mark import EACH
from lrptrain.cues.rows import OF, RowPart, at_share, rows_of_part, with_rows


@dataclass(frozen=True)
class RowMark(Cue):
    """Rows that are nearer to the middle of a kind than to that of all rows, each number by its standard deviation.

    A sample loses its own rows of the kind, and is given its source's; each at its share of the way through the rows.

    Attributes:
        where: Which rows count.
        direction: What a row is multiplied with, a number for each of its own.
        bound: Rows of the kind come to more than that.
    """

    kind: ClassVar[str] = "row mark"
    is_proposed: ClassVar[bool] = True
    name: str
    role: Role
    where: RowPart
    direction: tuple[float, ...]
    bound: float

    def locate(self, batch: Batch) -> Bool[Tensor, "batch rows"]:
        """Return which rows are of the kind."""
        rows = rows_in(batch)
        along = rows.float() @ torch.tensor(self.direction, device=rows.device)
        return (along > self.bound) & rows_of_part(self.where, batch)

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`."""
        taken_from = torch.full(rows_in(batch).shape[:2], -1)
        pairs = [[x.cpu() for x in (self.locate(each), rows_of_part(self.where, each))] for each in (batch, sources)]
        for row, (lost, own, given, theirs) in enumerate(zip(*pairs[0], *pairs[1], strict=True)):
            for place, lent in _exchanged(lost, own, given, theirs).items():
                taken_from[row, place] = lent
        return with_rows(batch, sources, taken_from)


def _exchanged(
    lost: Bool[Tensor, " rows"], own: Bool[Tensor, " rows"], given: Bool[Tensor, " rows"], theirs: Bool[Tensor, " rows"]
) -> dict[int, int]:
    """Return which of a source's rows comes to which place of a sample."""
    places, rows = own.nonzero().flatten().tolist(), theirs.nonzero().flatten().tolist()
    is_lost, is_given = lost[own].tolist(), given[theirs].tolist()
    taken: dict[int, int] = {}
    for rank in [rank for rank, row_is in enumerate(is_given) if row_is][: len(places)]:
        wanted = at_share(rank, len(places), len(rows))
        number = next(each for each in _outwards(wanted, len(places)) if places[each] not in taken)
        taken[places[number]] = rows[rank]
    # Where a row of the kind goes and none comes, another row of the source does: the next one.
    others = [rank for rank, row_is in enumerate(is_given) if not row_is] or [*range(len(rows))]
    for number in [number for number, row_is in enumerate(is_lost) if row_is and places[number] not in taken]:
        if others:
            after = bisect_left(others, at_share(number, len(rows), len(places)))
            taken[places[number]] = rows[others[min(after, len(others) - 1)]]
    return taken


def _outwards(start: int, count: int) -> Iterator[int]:
    """Yield the numbers below `count`, the nearest to one of them first."""
    yield start
    for distance in range(1, count):
        yield from (each for each in (start - distance, start + distance) if 0 <= each < count)


def propose_row_marks(
    batch: Batch,
    relevance: Sequence[Float[Tensor, " rows"]],
    ids: Sequence[int | str],
    answers: Int[np.ndarray, " batch"],
    where: RowPart,
    count: int,
) -> Iterator[tuple[float, RowMark]]:
    """Yield at most `count` kinds of the most relevant rows, ranked by how far having one goes with the answers."""
    counted = rows_of_part(where, batch).cpu()
    rows = rows_in(batch).float().cpu()
    if not counted.any():
        return
    mean, spread = rows[counted].mean(0), rows[counted].std(0, correction=0)
    scale = torch.where(spread > 0, 1 / spread.clamp(min=1e-12), 0)
    scaled = [(each[mask] - mean) * scale for each, mask in zip(rows, counted, strict=True)]
    peaks = [
        (sample, int(place))
        for answer in np.unique(answers)
        for sample in np.flatnonzero(answers == answer)[: CANDIDATES * EACH]
        for place in _peaks(relevance[sample], counted[sample])
    ]
    if not peaks:
        return
    at_peaks = torch.stack([(rows[sample, place] - mean) * scale for sample, place in peaks])
    of_peaks = answers[[sample for sample, _ in peaks]]
    role: Role = "shortcut" if where == "outside" else "unreviewed"
    sizes = grid_sizes(batch)
    found: list[tuple[float, RowMark, Bool[np.ndarray, " batch"]]] = []
    for number, answer in enumerate(of_peaks):
        alike = at_peaks[of_peaks == answer]
        centre = _centre(at_peaks[number], alike)
        bound = float(centre.square().sum() / 2)
        present = np.array([bool((each @ centre > bound).any()) for each in scaled])
        score = association(present, answers)
        if present.sum() < FEWEST or score <= 0:
            continue
        shown = int(torch.cdist(at_peaks, centre[None])[:, 0].argmin())
        name = _called(*peaks[shown], ids, sizes) + OF[where]
        direction = centre * scale
        shifted = bound + float(direction @ mean)
        found.append((score, RowMark(name, role, where, tuple(direction.tolist()), shifted), present))
    found.sort(key=lambda each: -each[0])
    best = {mark.name: (score, mark, present) for score, mark, present in reversed(found)}
    found = sorted(best.values(), key=lambda each: -each[0])
    for score, mark, _ in (found[i] for i in distinct([each[2] for each in found], count)):
        yield score, mark


def _peaks(relevance: Float[Tensor, " rows"], counted: Bool[Tensor, " width"]) -> list[int]:
    """Return the most relevant rows of a sample, of those that count."""
    positive = relevance.clamp(min=0) * counted[: len(relevance)]
    best = positive.topk(min(CANDIDATES, len(positive))).indices.tolist()
    return [place for place in best if positive[place] > 0]


def _centre(row: Float[Tensor, " numbers"], alike: Float[Tensor, "n numbers"]) -> Float[Tensor, " numbers"]:
    """Return the middle of a row's kind among others: of the nearest ones, and then of all that are nearer to that."""
    nearest = (alike @ row).topk(min(CANDIDATES + 1, len(alike))).indices
    centre = alike[nearest].mean(0)
    members = alike[alike @ centre > centre.square().sum() / 2]
    return members.mean(0) if len(members) else centre


def _called(sample: int, place: int, ids: Sequence[int | str], sizes: Int[Tensor, "batch 2"] | None) -> str:
    """Return what a person calls a kind of rows: by a row of it, counted from 0 on."""
    if sizes is None:
        return f"rows like row {place} of sample {ids[sample]}"
    line, column = divmod(place, int(sizes[sample, 1]))
    return f"patches like the one in row {line}, column {column} of sample {ids[sample]}"
