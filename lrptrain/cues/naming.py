"""Which of the cues that a model relies on are named: one rule, for images, texts and all else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lrptrain.cues.apart import Apart
from lrptrain.cues.cue import CANDIDATES, Cue
from lrptrain.cues.measure import Measure, MeasureError, Rows, effect_of, looks

if TYPE_CHECKING:
    from lrptrain.cues.search import Judged


class Naming:
    """Chooses what is named, and measures in full only what the choice depends on.

    A shortcut comes before what needs review, and a thing before a place. Of these it is the cue with the largest
    effect, or, of those that do as much, words before their family, and else the one that changes the least of the
    input. A further cue is named only if it still does something while the named ones stay.
    """

    def __init__(
        self,
        measure: Measure,
        least: float,
        level: float,
        rows: Callable[["Judged"], Rows],
        completed: Callable[["Judged"], "Judged"],
        size: Callable[[Cue], float],
    ) -> None:
        self._measure, self._least, self._level = measure, least, level
        self._rows, self._completed, self._size = rows, completed, size
        self._judged: list[Judged] = []

    def run(self, judged: Sequence["Judged"]) -> list["Judged"]:
        """Return judged cues; those that are named come first, in their order."""
        self._judged = [*judged]
        relied = {i: each for i, each in enumerate(judged) if each.verdict == "relies" and not each.is_whole}
        has_things = {each.is_fault for each in relied.values() if not each.cue.is_rest}
        left = {i: each for i, each in relied.items() if not (each.cue.is_rest and each.is_fault in has_things)}
        order: list[int] = []
        while len(order) < CANDIDATES and (chosen := self._next(left)) is not None:
            order.append(chosen)
            del left[chosen]
            left = self._beside(left, self._judged[chosen].cue)
        names = list(dict.fromkeys(self._judged[i].cue.name for i in order))
        told = [
            replace(
                _shared(self._judged[i], self._judged, self._measure),
                named=True,
                also_relies_on=tuple(x for x in names if x != name),
            )
            for i, name in ((i, self._judged[i].cue.name) for i in order)
        ]
        others = [each for i, each in enumerate(self._judged) if i not in order]
        return [*told, *sorted(others, key=lambda each: -each.effect.low)]

    def _next(self, left: dict[int, "Judged"]) -> int | None:
        """Return which is named next; what may be is measured in full, and goes if it then does nothing."""
        full: set[int] = set()
        while left:
            ranks = {i: (not self._judged[i].is_fault, self._judged[i].cue.is_position) for i in left}
            first = [i for i in left if ranks[i] == min(ranks.values())]
            has = {i: self._share(i) for i in first}
            effects = {i: has[i] * left[i].effect.mean for i in first}
            most = max(first, key=lambda i: effects[i])
            enough = min(has[most] * left[most].effect.low, effects[most] - self._least)
            near = [i for i in first if i not in full and (i == most or has[i] * left[i].effect.high >= enough)]
            if not near:
                alike = [i for i in first if effects[i] >= enough]
                # Of two that are the same, the later one: a part of the other.
                return min(
                    alike[::-1],
                    key=lambda i: (self._judged[i].cue.is_family, self._size(self._judged[i].cue), -effects[i]),
                )
            i = max(near, key=lambda i: effects[i])
            full.add(i)
            left[i] = self._in_full(i, left[i])
            if left[i].effect.low <= self._least:
                del left[i]
        return None

    def _in_full(self, i: int, each: "Judged") -> "Judged":
        if not isinstance(each.cue, Apart):
            self._judged[i] = self._completed(each)
            return self._judged[i]
        return _controlled(each, self._measure, self._level)

    def _share(self, i: int) -> float:
        """Return which share of the samples has a cue, as far as they are measured."""
        known = ~np.isnan(self._judged[i].values[self._rows(self._judged[i])])
        return float(known[: known.nonzero()[0].max(initial=-1) + 1].mean()) if known.any() else 0.0

    def _beside(self, left: Mapping[int, "Judged"], stays: Cue) -> dict[int, "Judged"]:
        """Return what may still do something while a cue stays: no part of what does nothing then does anything."""
        found: dict[int, Judged] = {}
        idle: set[str] = set()
        for i, each in left.items():
            if self._share(i) < 1:  # which samples have it, only a measurement of all of them tells
                self._judged[i] = self._completed(self._judged[i])
            rows = self._rows(self._judged[i])
            rows = rows[~np.isnan(self._judged[i].values[rows])] if self._share(i) < 1 else rows
            is_part = self._judged[i].within in idle
            beside = None if is_part else _without(each, stays, self._measure, self._least, self._level, rows)
            if beside is None:
                idle.add(self._judged[i].cue.name)
            else:
                found[i] = beside
        return found


def opened(
    judged: Sequence["Judged"],
    measure: Measure,
    least: float,
    level: float,
    rows: Callable[["Judged"], Rows],
    declared: Sequence[Cue],
) -> list["Judged"]:
    """Return judged cues, of which what may be evidence that nobody marked needs review, and is no shortcut.

    Rationales are seldom complete: all other words together are a shortcut only if they do more than the text does
    without them, and so is what is known by where it stands. What people have declared stays.
    """
    found = [*judged]
    for whole in (each for each in judged if each.is_whole):
        rests = (each for each in judged if each.cue.is_rest and each.is_fault and each.within == whole.cue.name)
        for rest in rests:
            others = rows(rest)[~np.isnan(rest.values[rows(rest)])]
            all_of_it = replace(rest, cue=whole.cue, rows=whole.rows)
            beside = _without(all_of_it, rest.cue, measure, least, level, others)
            if beside is None or rest.effect.mean > _controlled(beside, measure, level).effect.mean:
                continue
            for i, each in enumerate(found):
                may_open = each.cue.needs_annotation and (each.cue.is_rest or each.cue.is_position)
                if may_open and each.is_fault and each.cue not in declared:
                    found[i] = replace(each, cue=each.cue.declared("unreviewed"))
    return found


def _without(judged: "Judged", other: Cue, measure: Measure, least: float, level: float, rows: Rows) -> "Judged | None":
    """Return a cue with the drops on some samples while another one stays; None once they surely do not matter."""
    cue, values = Apart.of(judged.cue, other), np.full(len(judged.values), np.nan)
    try:
        for end in (*looks(len(rows)), len(rows)):
            # What is the same in both donors does nothing.
            values[rows[:end]] = np.nan_to_num(measure.drops(cue, rows[:end], judged.rows))
            if effect_of(values, level).high < least:
                return None
    except MeasureError:  # cues of different inputs
        return judged
    return replace(judged, cue=cue, values=values, effect=effect_of(values, level))


def _controlled(judged: "Judged", measure: Measure, level: float) -> "Judged":
    """Return a cue without another one with its effects in the place of the drops."""
    rows = np.flatnonzero(~np.isnan(judged.values))
    values = np.full(len(judged.values), np.nan)
    values[rows] = np.nan_to_num(measure.effects(judged.cue, rows, judged.rows))
    return replace(judged, values=values, effect=effect_of(values, level))


def _shared(judged: "Judged", among: Sequence["Judged"], measure: Measure) -> "Judged":
    """Return a cue with its share of what all of its input does, or else of the largest cue that it is a part of."""
    parents = {each.cue.name: each for each in among}
    around = judged
    while around.within in parents and around.within != around.cue.name:
        around = parents[around.within]
    if judged.cue.kind != "input" and not (around.is_whole or around.cue.is_rest):
        around = next((each for each in among if each.is_whole and each.cue.kind != "input"), around)
    if around is judged:
        return judged
    rows = np.flatnonzero(~np.isnan(judged.values))
    whole = float(np.nansum(measure.effects(around.cue, rows, around.rows)))
    share = min(max(float(np.nansum(judged.values[rows])) / whole, 0.0), 1.0) if whole > 0 else None
    return replace(judged, within=around.cue.name, share=share)
