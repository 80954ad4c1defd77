"""Which of the cues that a model relies on are named: one rule, for images, texts and all else."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lrptrain.cues.apart import Apart
from lrptrain.cues.cue import CANDIDATES, Cue
from lrptrain.cues.measure import FIRST_LOOK, Indices, Measure, MeasureError, effect_of

if TYPE_CHECKING:
    from lrptrain.cues.search import Judged


def named(
    judged: Sequence["Judged"],
    measure: Measure,
    least: float,
    level: float,
    chosen: Callable[["Judged"], Indices],
    size: Callable[[Cue], float],
) -> list["Judged"]:
    """Return judged cues; those that are named come first, in their order.

    A shortcut comes before what needs review, and a thing before a place. Of these it is the cue with the largest
    effect, or, of those that do as much, words before their family, and else the one that changes the least of the
    input. A further cue is named only if it still does something while the named ones stay.

    Args:
        judged: The cues, those that are relied on measured on the same samples.
        measure: Measures what a cue does while others stay.
        least: The least effect that matters.
        level: The probability that an effect lies beyond either end of its interval.
        chosen: Returns these samples. Of those that do not have a cue, it decides none.
        size: Returns which share of an input a cue changes, in [0, 1].
    """
    relied = {i: each for i, each in enumerate(judged) if each.verdict == "relies" and not each.is_whole}
    has_things = {each.is_fault for each in relied.values() if not each.cue.is_rest}
    left = {i: each for i, each in relied.items() if not (each.cue.is_rest and each.is_fault in has_things)}
    has = {i: float(1 - np.isnan(judged[i].values[chosen(judged[i])]).mean()) for i in left}
    order: list[int] = []
    while left and len(order) < CANDIDATES:
        ranks = {i: (not judged[i].is_fault, judged[i].cue.is_position) for i in left}
        first = [i for i in left if ranks[i] == min(ranks.values())]
        effects = {i: has[i] * left[i].effect.mean for i in first}
        most = max(first, key=lambda i: effects[i])
        enough = min(has[most] * left[most].effect.low, effects[most] - least)
        alike = [i for i in first if effects[i] >= enough]
        # Of two that are the same, the later one: a part of the other.
        order.append(min(alike[::-1], key=lambda i: (judged[i].cue.is_family, size(judged[i].cue), -effects[i])))
        stays = judged[order[-1]].cue
        beside = {
            i: _without(each, stays, measure, least, level, chosen(judged[i]))
            for i, each in left.items()
            if i != order[-1]
        }
        left = {i: each for i, each in beside.items() if each.effect.low > least}
    names = list(dict.fromkeys(judged[i].cue.name for i in order))
    told = [
        replace(_shared(judged[i], judged, measure), named=True, also_relies_on=tuple(x for x in names if x != name))
        for i, name in ((i, judged[i].cue.name) for i in order)
    ]
    others = [each for i, each in enumerate(judged) if i not in order]
    return [*told, *sorted(others, key=lambda each: -each.effect.low)]


def opened(
    judged: Sequence["Judged"],
    measure: Measure,
    least: float,
    level: float,
    chosen: Callable[["Judged"], Indices],
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
            beside = _without(
                replace(rest, cue=whole.cue, chosen=whole.chosen), rest.cue, measure, least, level, chosen(rest)
            )
            if rest.effect.mean > beside.effect.mean:
                continue
            for i, each in enumerate(found):
                may_open = each.cue.needs_annotation and (each.cue.is_rest or each.cue.is_position)
                if may_open and each.is_fault and each.cue not in declared:
                    found[i] = replace(each, cue=each.cue.declared("unreviewed"))
    return found


def _without(judged: "Judged", other: Cue, measure: Measure, least: float, level: float, chosen: Indices) -> "Judged":
    """Return what a cue does, on the same samples, while another one stays as it is."""
    cue, chosen = Apart.of(judged.cue, other), chosen[~np.isnan(judged.values[chosen])]
    values = np.full(len(judged.values), np.nan)
    try:
        # What is the same in both sources does nothing. As in a search, answers that do not drop need no control.
        values[chosen[:FIRST_LOOK]] = np.nan_to_num(measure.drops(cue, chosen[:FIRST_LOOK], judged.chosen))
        if effect_of(values, level).high >= least:
            values[chosen] = np.nan_to_num(measure.effects(cue, chosen, judged.chosen))
    except MeasureError:  # cues of different inputs
        return judged
    return replace(judged, cue=cue, values=values, effect=effect_of(values, level))


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
    chosen = np.flatnonzero(~np.isnan(judged.values))
    whole = float(np.nansum(measure.effects(around.cue, chosen, around.chosen)))
    share = min(max(float(np.nansum(judged.values[chosen])) / whole, 0.0), 1.0) if whole > 0 else None
    return replace(judged, within=around.cue.name, share=share)
