"""The test of a tree of cues, from the top: one interval gives the verdict, the smallest part is named.

The level is handed down: roots share that of all tests, and the children of a node that relies share its level. A false
"relies" anywhere then has no more than that level (the inheritance procedure of Goeman & Finos 2012, by the sequential
rejection principle of Goeman & Solari 2010).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from lrptrain.batch import collate
from lrptrain.batch.matters import FEWEST_SAMPLES, LEAST_EFFECT
from lrptrain.cues.apart import Apart
from lrptrain.cues.cue import CANDIDATES, MOST, Cue
from lrptrain.cues.family import Family
from lrptrain.cues.look import Look
from lrptrain.cues.measure import (
    FEWEST_FLIPPED,
    FIRST_LOOK,
    Effect,
    Measure,
    MeasureError,
    Rows,
    at_best,
    effect_of,
    flipped,
)

Verdict = Literal["relies", "not sure", "does not rely"]
ENOUGH = 64
"""What is named is measured on so many samples: an effect that varies by 50 points is known to 12 then."""


@dataclass(frozen=True)
class Node:
    """A cue to be tested.

    Attributes:
        cue: The cue.
        rows: The samples that judge it, and give it.
        parts: What it divides into, beside the children of the cue.
        weight: Its share of the level, beside that of the other roots.
        is_whole: Whether it is all of an input, which cannot but decide answers: only its parts say anything.
    """

    cue: Cue
    rows: Rows
    parts: tuple["Node", ...] = ()
    weight: float = 1.0
    is_whole: bool = False

    def divided(self) -> list["Node"]:
        """Return what it divides into."""
        return [*(Node(cue, self.rows) for cue in self.cue.children()), *self.parts]


@dataclass(frozen=True)
class Judged:
    """A cue with what its exchange has shown.

    Attributes:
        cue: The cue.
        verdict: Whether the interval of the effect lies above the least one that matters, below it, or on both sides.
        effect: The effect; where the verdict needed no control, the drop that bounds it.
        values: The effect on each sample of the evaluation; nan where it was not measured.
        rows: The samples that judge it, and give it.
        within: The name of the cue that it is a part of; "" for none.
        share: Which share of that cue's effect it carries; None for none.
        named: Whether it is what a report names: it relies, and no part of it carries most of its effect.
        answer: The answer that alone is told by it, as a class; None for all of them together.
        told_by: The names of other named cues: what is mended of this one, they still tell.
        label: Of a model of several labels, the number of that which it tells; None of any other.
    """

    cue: Cue
    verdict: Verdict
    effect: Effect
    values: Float[np.ndarray, " samples"] = field(repr=False, compare=False)
    rows: Rows = field(repr=False, compare=False)
    within: str = ""
    share: float | None = None
    named: bool = False
    answer: int | None = None
    told_by: tuple[str, ...] = ()
    label: int | None = None

    @property
    def is_fault(self) -> bool:
        """Whether the model relies on what is a fault."""
        return self.verdict == "relies" and self.cue.role == "fault"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; null for nan."""
        effect = {name: None if math.isnan(x) else round(float(x), 6) for name, x in self.effect._asdict().items()}
        plain = {"verdict": self.verdict, "within": self.within, "share": self.share, "named": self.named}
        return {"cue": self.cue.to_dict(), **plain, **effect, "samples": self.effect.samples, "answer": self.answer}


class Search:
    """Tests cues on the samples of a measure.

    Args:
        measure: Measures effects.
        min_effect: The least effect that matters, in (0, 1).
        confidence: `1 - confidence` is the level of all tests together.
        declared: Cues of which people have said what they are: a cue that is the same has their role.
        on_failure: Takes a cue that cannot be measured, and why; the others go on. None passes the error on.
        places: Where cues lie in the samples, as far as another search has found out.
    """

    def __init__(
        self,
        measure: Measure,
        min_effect: float = LEAST_EFFECT,
        confidence: float = 0.95,
        declared: Sequence[Cue] = (),
        on_failure: Callable[[Cue, MeasureError], None] | None = None,
        places: dict[Cue, Bool[np.ndarray, " places"] | None] | None = None,
    ) -> None:
        self._measure = measure
        self._least = min_effect
        self._level = 1 - confidence
        self._declared = declared
        self._on_failure = on_failure
        self._judged: list[Judged] = []
        self._places = {} if places is None else places

    def run(self, roots: Sequence[Node]) -> list[Judged]:
        """Test roots, and what they divide into; what is named comes first, by the lower end of its effect."""
        self._judged = []
        total = sum(root.weight for root in roots)
        for root in roots:
            self._test(root, self._level * root.weight / total, None)
        self._leave_out_parts(roots)
        for root in roots:
            if root.is_whole and not any(each.named for each in self._judged):
                self._name_strongest(root.cue.name)
        self._fold()
        self._explain()
        names = list(dict.fromkeys(each.cue.name for each in self._judged if each.named))
        told = [
            replace(each, told_by=tuple(name for name in names if name != each.cue.name)) if each.named else each
            for each in self._judged
        ]
        return sorted(told, key=lambda each: (not each.named, -each.effect.low))

    def _leave_out_parts(self, roots: Sequence[Node]) -> None:
        """Leave out shortcuts outside of the annotation where the model does not rely on all that lies there.

        They are roots if they were named before or are the user's: an image statistic may break what a swap of all
        that lies there leaves as it is.
        """
        if not any(_is_outside(node.cue) and node.cue.is_rest for root in roots for node in (root, *root.parts)):
            return
        outside = [each for each in self._judged if _is_outside(each.cue) and each.verdict == "relies"]
        if not any(each.cue.is_rest for each in outside):
            self._judged = [each for each in self._judged if not (each.is_fault and each in outside)]

    def _test(self, node: Node, level: float, parent: Judged | None) -> Judged | None:
        node = replace(node, cue=self._as_declared(node.cue))
        try:
            judged = self._judge(node, level, parent)
        except MeasureError as error:
            if self._on_failure is None:
                raise
            self._on_failure(node.cue, error)
            return None
        # What no sample has, as texts without numbers, is no cue of theirs; of a fault that is a doubt.
        if not judged.effect.samples and len(node.rows) >= FEWEST_SAMPLES and judged.cue.role != "fault":
            return None
        relies = judged.verdict == "relies"
        before = len(self._judged)
        children: list[Judged | None] = []
        if relies:
            nodes = node.divided()
            children = [self._test(each, level / len(nodes), judged) for each in nodes]
        carried = any(each is not None and each.verdict == "relies" and (each.share or 0) > MOST for each in children)
        # Of a part, only that it carries most says anything: what lies beside it does as much.
        says = not node.is_whole and (judged.share is None or judged.share > MOST)
        if relies and says and not carried:
            judged = self._completed(judged)
            if judged.named and judged.cue.is_rest:
                self._name_strongest(judged.cue.name)
        if node.is_whole:
            self._judged[before:] = self._opened(self._judged[before:], judged)
        self._judged.append(judged)
        return judged

    def _name_strongest(self, whole: str) -> None:
        """Name the strongest part of a whole: a person can picture it, though it is not most."""
        relied = [each for each in self._judged if each.verdict == "relies" and each.within == whole]
        if relied:
            strongest = max(relied, key=lambda each: each.share or 0)
            self._judged[self._judged.index(strongest)] = self._completed(strongest)

    def _opened(self, parts: Sequence[Judged], whole: Judged) -> list[Judged]:
        """Return the parts of all of an input, of which what is no evidence may be too little to be called a fault.

        It is said as open then, and so is what is known by where it lies alone, unless little is left without it.
        """
        little = [each for each in parts if each.within == whole.cue.name and each.cue.is_rest and each.is_fault]
        if not little or (little[0].share or 0) > MOST:
            return [*parts]
        opened = []
        for each in parts:
            may_open = each.cue.is_rest or (each.cue.is_position and not self._explains(each, little[0]))
            may_open &= each.cue not in self._declared  # what people have said stands
            opened.append(replace(each, cue=each.cue.declared("open")) if may_open else each)
        rest = next(i for i, each in enumerate(parts) if each is little[0])
        if not any(each.named for each in opened):
            opened[rest] = self._completed(opened[rest])
        return opened

    def _as_declared(self, cue: Cue) -> Cue:
        return next((each for each in self._declared if cue.declared(each.role) == each), cue)

    def _judge(self, node: Node, level: float, parent: Judged | None) -> Judged:
        answers = self._measure.answers
        answer = None if parent is None else parent.answer
        takers = node.rows if answer is None else node.rows[answers[node.rows] == answer]
        classes = [] if answer is not None else [int(each) for each in np.unique(answers[takers])]
        # Of three classes and more, one may be told by what says nothing of the others: the level is shared.
        share = level / 2 if len(classes) > 2 else level
        parts = self._looks(takers)
        values, drops = (np.full(len(answers), np.nan) for _ in range(2))
        # Of a fault it is told, too, that a model surely does not rely on it; of all that may be one, by all samples:
        # the first ones seldom have what few of them show.
        is_asked = parent is None and node.cue.role == "fault"
        is_told = node.cue.role == "fault" and (parent is None or node.cue.is_rest)
        verdict: Verdict = "not sure"
        known = values
        for number, part in enumerate(parts):
            measured = np.concatenate(parts[: number + 1])
            known = drops
            known[part] = self._measure.drops(node.cue, part, node.rows)
            is_idle = self._is_idle(known)
            if not is_idle and (is_asked or self._may_rely(known, measured, takers, share, classes)):
                known = values
                missing = measured[np.isnan(known[measured])]  # also of earlier looks that needed no control
                known[missing] = self._measure.effects(node.cue, missing, node.rows)
                # Each look may say that the model relies on it: the last has half of the level, the one before a
                # quarter.
                if effect_of(known, share / 2 ** (len(parts) - number)).low > self._least:
                    verdict = "relies"
                    break
                is_idle = self._is_idle(known)
            # Ending early for want of an effect makes none.
            goes_on = is_told if is_idle else is_asked or self._may_rely(known, measured, takers, share, classes)
            if not goes_on:
                break
        effect = effect_of(known, share / 2 ** (len(parts) - number))
        if verdict != "relies" and self._is_idle(known):
            effect, verdict = effect_of(known, self._level / 2), "does not rely"
        if verdict != "relies" and known is values and len(classes) > 2:
            alone = self._of_one_answer(values, classes, share / len(classes))
            if alone is not None:
                answer, effect, verdict = *alone, "relies"
                known = np.where(answers == answer, values, np.nan)
        return self._compared(Judged(node.cue, verdict, effect, known, node.rows, answer=answer), parent)

    def _is_idle(self, values: Float[np.ndarray, " samples"]) -> bool:
        """Return whether a model surely does not rely on a cue: neither in the mean nor in a few samples."""
        flips = flipped(values, max(MOST, self._least))
        return flips < FEWEST_FLIPPED and effect_of(values, self._level / 2).high < self._least

    def _may_rely(
        self, values: Float[np.ndarray, " samples"], measured: Rows, takers: Rows, level: float, classes: Sequence[int]
    ) -> bool:
        """Return whether the last look may still say "relies", of all answers or of one alone.

        A test that ends for want of hope says "not sure", and makes no false "relies".
        """
        answers = self._measure.answers
        groups = [(np.ones(len(answers), bool), level / 2)]
        groups += [(answers == each, level / len(classes)) for each in classes if len(classes) > 2]
        for is_in, last in groups:
            so_far = values[measured[is_in[measured]]]
            best = at_best(so_far, int(is_in[takers].sum()), last, self._level)
            # As in `_of_one_answer`, an answer alone has to matter over all samples.
            if best.low > self._least and best.high * is_in.mean() > self._least:
                return True
        return False

    def _looks(self, takers: Rows) -> list[Rows]:
        """Return samples in the order in which they are measured, in parts; of every cue the same ones come first."""
        everyone = np.random.default_rng(len(self._measure.answers)).permutation(len(self._measure.answers))
        order = everyone[np.isin(everyone, takers)]
        ends = [FIRST_LOOK * 2**i for i in range(len(order).bit_length()) if FIRST_LOOK * 2**i < len(order)]
        return np.split(order, ends)

    def _of_one_answer(
        self, values: Float[np.ndarray, " samples"], classes: Sequence[int], level: float
    ) -> tuple[int, Effect] | None:
        """Return the answer that is surely told, if one is, and the effect on its samples.

        What matters is the same as of all answers: the effect has to be large enough in the mean over all samples.
        """
        answers = self._measure.answers
        found = [(each, effect_of(values[answers == each], level)) for each in classes]
        answer, effect = max(found, key=lambda pair: pair[1].low)
        share = float((answers == answer).sum()) / len(answers)
        is_sure = effect.low > self._least and effect.high * share > self._least
        return (answer, effect) if is_sure and effect.samples >= FEWEST_SAMPLES else None

    def _compared(self, judged: Judged, parent: Judged | None) -> Judged:
        """Return a part with its share of what the whole does, on the samples that it was measured on."""
        if parent is None:
            return judged
        if judged.verdict != "relies":
            return replace(judged, within=parent.cue.name)
        measured = np.flatnonzero(~np.isnan(judged.values))
        self._measure_further(parent, measured)
        # What an image statistic does beyond the whole, its exchange has broken.
        more = judged.values[measured] - parent.values[measured]
        if isinstance(judged.cue, Look) and effect_of(more, self._level / 2).low > self._least:
            return replace(judged, within=parent.cue.name, verdict="not sure")
        whole = float(np.nansum(parent.values[measured]))
        share = float(np.nansum(judged.values[measured])) / whole if whole > 0 else None
        return replace(judged, within=parent.cue.name, share=share)

    def _measure_further(self, judged: Judged, rows: Rows) -> None:
        """Measure a cue on those of some samples on which it was not."""
        judged.values[rows] = self._measure.effects(judged.cue, rows, judged.rows)

    def _completed(self, judged: Judged) -> Judged:
        """Return a cue that is to be named, measured on `ENOUGH` samples: people read the number.

        If it is not sure any more, it is not named, and what it is a part of may be.
        """
        answer = judged.answer
        takers = judged.rows if answer is None else judged.rows[self._measure.answers[judged.rows] == answer]
        self._measure_further(judged, np.concatenate(self._looks(takers))[:ENOUGH])
        effect = effect_of(judged.values, self._level / 2)
        relies = effect.low > self._least
        return replace(judged, effect=effect, verdict="relies" if relies else "not sure", named=relies)

    def _fold(self) -> None:
        """Of two named cues of which one lies within the other, keep the larger one only if it surely does more.

        A fault is never left out for what nobody has spoken of.
        """
        located = {i: self._located(each.cue) for i, each in enumerate(self._judged) if each.named}
        for inner, outer in permutations(located, 2):
            one, other = self._judged[inner], self._judged[outer]
            if not (one.named and other.named and _lies_within(one.cue, other.cue, located[inner], located[outer])):
                continue
            # Of a word that is all of its family, as the only number of all texts, the word is kept.
            is_word = isinstance(one.cue, Family) and not (isinstance(other.cue, Family) or other.cue.is_several)
            within, around = located[inner], located[outer]
            if is_word and within is not None and around is not None and np.array_equal(within, around):
                continue
            shared = np.intersect1d(one.rows, other.rows)
            self._measure_further(one, shared[~np.isnan(other.values[shared])])
            # Where it is the same in both donors, the smaller one does nothing.
            more = other.values[shared] - np.nan_to_num(one.values[shared])
            does_more = effect_of(more, self._level / 2).low > self._least
            if does_more and other.cue.is_rest:
                continue
            if one.is_fault == other.is_fault:
                lost = inner if does_more else outer
            elif other.is_fault:
                lost = inner
            elif does_more:
                continue
            else:
                lost = outer
            self._judged[lost] = replace(self._judged[lost], named=False)

    def _explain(self) -> None:
        """Leave out named cues of which smaller ones carry most: the colours of an image whose corner tells by them.

        The larger one is exchanged, and the smaller one put back. Of two of the same extent it is either. A texture
        that lies all over an image is not that of its border: less than half is left of what would be if it did.
        """
        for first, second in combinations(self._strongest(), 2):
            extents = [self._extent(self._judged[each].cue) for each in (first, second)]
            pairs = [(second, first), (first, second)] if extents[0] <= extents[1] else [(first, second)]
            if extents[0] == extents[1]:  # an image statistic goes rather than a thing, such as a channel
                pairs.sort(key=lambda pair: not isinstance(self._judged[pair[0]].cue, Look))
            for lost, kept in pairs if extents[0] == extents[1] else pairs[:1]:
                one, other = self._judged[lost], self._judged[kept]
                # A fault is never left out for what nobody has spoken of.
                may_go = one.named and other.named and (other.is_fault or not one.is_fault)
                if may_go and self._explains(other, one):
                    self._judged[lost] = replace(one, named=False)

    def _explains(self, smaller: Judged, larger: Judged) -> bool:
        """Return whether a cue does most of what a larger one does, and more than its share of the places."""
        spared = self._beside(larger.cue, smaller.cue)
        return spared > 0 and self._left(larger, smaller) <= (1 - MOST) * spared

    def _left(self, judged: Judged, other: Judged) -> float:
        """Return which share of its effect a cue has with another put back; 1 if that one does not do most of it."""
        rows = self._common(judged, other)
        if np.nansum(other.values[rows]) <= MOST * np.nansum(judged.values[rows]):
            return 1.0
        try:
            values = self._measure.effects(Apart.of(judged.cue, other.cue), rows, judged.rows)
        except MeasureError:  # cues of different inputs
            return 1.0
        whole = float(np.nansum(judged.values[rows]))
        return float(np.nansum(values)) / whole if whole > 0 else 1.0

    def _beside(self, cue: Cue, other: Cue) -> float:
        """Return which share of a cue's places another one leaves to it; 0 if that one explains nothing."""
        around, within = self._located(cue), self._located(other)
        if within is None or other.is_rest:
            return 0.0 if other.is_rest else 1.0
        around = np.ones_like(within) if around is None or len(around) != len(within) else around
        return 1 - float((within & around).sum() / max(around.sum(), 1))

    def _strongest(self) -> list[int]:
        named = [i for i, each in enumerate(self._judged) if each.named]
        return sorted(named, key=lambda i: -self._judged[i].effect.low)[:CANDIDATES]

    def _common(self, one: Judged, other: Judged) -> Rows:
        """Return samples on which two cues were measured, the first ones of all looks."""
        measured = np.flatnonzero(~np.isnan(one.values) & ~np.isnan(other.values))
        return np.concatenate(self._looks(measured))[:FIRST_LOOK]

    def _extent(self, cue: Cue) -> tuple[bool, float]:
        """Return whether a cue is several things, and how many places it takes; infinity for what lies everywhere."""
        places = self._located(cue)
        return cue.is_several, math.inf if places is None else float(places.sum())

    def _located(self, cue: Cue) -> Bool[np.ndarray, " places"] | None:
        """Return where a cue lies in all samples, one behind the other; None for what lies everywhere."""
        if cue not in self._places:
            found = [cue.locate(collate([sample])) for sample in self._measure.samples]
            places = [each.flatten().cpu().numpy() for each in found if each is not None]
            self._places[cue] = np.concatenate(places) if len(places) == len(found) else None
        return self._places[cue]


def _is_outside(cue: Cue) -> bool:
    return getattr(cue, "where", "") == "outside"


def _lies_within(
    inner: Cue, outer: Cue, within: Bool[np.ndarray, " places"] | None, around: Bool[np.ndarray, " places"] | None
) -> bool:
    """Return whether a cue lies for the most part within another; a look lies within the same look of more."""
    if isinstance(inner, Look) or isinstance(outer, Look):
        return type(inner) is type(outer) and around is None and within is not None
    # Of a channel of an image, no pixels are places.
    if within is None or around is None or len(within) != len(around) or within.sum() > around.sum():
        return False
    return bool((within & around).sum() > MOST * within.sum())
