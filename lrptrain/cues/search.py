"""The test of a tree of cues, from the top: one interval gives the verdict, and a rule what is named.

The level is handed down: roots share that of all tests, and the children of a node that relies share its level. A false
"relies" anywhere then has no more than that level (the inheritance procedure of Goeman & Finos 2012, by the sequential
rejection principle of Goeman & Solari 2010).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from lrptrain.batch import collate
from lrptrain.batch.matters import FEWEST_SAMPLES, LEAST_EFFECT
from lrptrain.cues.cue import Cue
from lrptrain.cues.measure import (
    FEWEST_FLIPPED,
    FIRST_LOOK,
    FLIP,
    Effect,
    Indices,
    Measure,
    MeasureError,
    at_best,
    effect_of,
    flipped,
)
from lrptrain.cues.naming import named, opened

Verdict = Literal["relies", "inconclusive", "does not rely"]
ENOUGH = 64
"""What is named is measured on so many samples: an effect that varies by 50 points is known to 12 then. Half as
many need 13 % fewer forward passes, twice as many 26 % more; the cause is first in as many models
(`python -m experiments.benchmark.moved`)."""


@dataclass(frozen=True)
class Node:
    """A cue to be tested.

    Attributes:
        chosen: The samples that judge it, and give it.
        parts: What it divides into, beside the children of the cue.
        weight: Its share of the level, beside that of the other roots.
        is_whole: Whether it is all of an input, which cannot but decide answers: only its parts say anything.
    """

    cue: Cue
    chosen: Indices
    parts: tuple["Node", ...] = ()
    weight: float = 1.0
    is_whole: bool = False

    def divided(self) -> list["Node"]:
        """Return what it divides into."""
        return [*(Node(cue, self.chosen) for cue in self.cue.children()), *self.parts]


@dataclass(frozen=True)
class Judged:
    """A cue with what its exchange has shown.

    Attributes:
        verdict: Whether the interval of the effect lies above the least one that matters, below it, or on both sides.
        effect: The effect; where the verdict needed no control, the drop that bounds it.
        values: The effect on each sample of the evaluation; nan where it was not measured.
        chosen: The samples that judge it, and give it.
        within: The name of the cue that it is a part of; "" for none. Of what is named it is all of the input.
        share: Of what is named, which share of that cue's effect it carries, in [0, 1]; None for none.
        named: Whether it is what a report names; see `lrptrain.cues.naming`.
        answer: The answer that alone is predictable from it, as a class; None for all of them together.
        also_relies_on: The names of other named cues: a fix of this one leaves the model those.
        label: Of a model of several labels, the number of that which it tells; None of any other.
        is_whole: Whether it is all of an input.
    """

    cue: Cue
    verdict: Verdict
    effect: Effect
    values: Float[np.ndarray, " samples"] = field(repr=False, compare=False)
    chosen: Indices = field(repr=False, compare=False)
    within: str = ""
    share: float | None = None
    named: bool = False
    answer: int | None = None
    also_relies_on: tuple[str, ...] = ()
    label: int | None = None
    is_whole: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether the model relies on what is a fault."""
        return self.verdict == "relies" and self.cue.role == "shortcut"

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
        on_failure: Takes a cue that cannot be measured, and why; the others continue. None passes the error on.
        sizes: How large cues are in the samples, as far as another search has found out.
    """

    def __init__(
        self,
        measure: Measure,
        min_effect: float = LEAST_EFFECT,
        confidence: float = 0.95,
        declared: Sequence[Cue] = (),
        on_failure: Callable[[Cue, MeasureError], None] | None = None,
        sizes: dict[Cue, float] | None = None,
    ) -> None:
        self._measure = measure
        self._least = min_effect
        self._level = 1 - confidence
        self._declared = declared
        self._on_failure = on_failure
        self._judged: list[Judged] = []
        self._sizes = {} if sizes is None else sizes

    def run(self, roots: Sequence[Node]) -> list[Judged]:
        """Test roots, and what they divide into; what is named comes first, in the order of the rule (`named`)."""
        self._judged = []
        total = sum(root.weight for root in roots)
        for root in roots:
            self._test(root, self._level * root.weight / total, None)
        judged = [self._completed(each) for each in self._judged]
        if any(node.cue.is_outside and node.cue.is_rest for root in roots for node in (root, *root.parts)):
            rests = [each for each in judged if each.cue.is_outside and each.cue.is_rest and each.verdict == "relies"]
            judged = [each for each in judged if self._may_be_outside(each, rests)]
        options = self._measure, self._least, self._level / 2, self._first
        return named(opened(judged, *options, self._declared), *options, self._size)

    def _may_be_outside(self, judged: Judged, rests: Sequence[Judged]) -> bool:
        """Return whether a cue may be no shortcut outside of the annotation, or not more than all that lies there."""
        if not (judged.is_fault and judged.cue.is_outside):
            return True
        more = [effect_of(judged.values - rest.values, self._level / 2).low for rest in rests]
        return any(each <= self._least for each in more)

    def _test(self, node: Node, level: float, parent: Judged | None) -> None:
        node = replace(node, cue=self._as_declared(node.cue))
        try:
            judged = self._judge(node, level, parent)
        except MeasureError as error:
            if self._on_failure is None:
                raise
            self._on_failure(node.cue, error)
            return
        # What no sample has, as texts without numbers, is no cue of theirs; of a fault that is a doubt.
        if not judged.effect.samples and len(node.chosen) >= FEWEST_SAMPLES and judged.cue.role != "shortcut":
            return
        self._judged.append(judged)
        nodes = node.divided() if judged.verdict == "relies" else []
        for each in nodes:
            self._test(each, level / len(nodes), judged)

    def _as_declared(self, cue: Cue) -> Cue:
        return next((each for each in self._declared if cue.declared(each.role) == each), cue)

    def _judge(self, node: Node, level: float, parent: Judged | None) -> Judged:
        answers = self._measure.answers
        answer = None if parent is None else parent.answer
        takers = node.chosen if answer is None else node.chosen[answers[node.chosen] == answer]
        classes = [] if answer is not None else [int(each) for each in np.unique(answers[takers])]
        # Of three classes and more, one may be predictable from what says nothing of the others: the level is shared.
        share = level / 2 if len(classes) > 2 else level
        parts = self._looks(takers)
        values, drops = (np.full(len(answers), np.nan) for _ in range(2))
        # Of a fault it is told, too, that a model does not rely on it; of all that may be one, by all samples:
        # the first ones seldom have what few of them show.
        is_asked = parent is None and node.cue.role == "shortcut"
        is_told = node.cue.role == "shortcut" and (parent is None or node.cue.is_rest)
        verdict: Verdict = "inconclusive"
        known = values
        for number, part in enumerate(parts):
            measured = np.concatenate(parts[: number + 1])
            known = drops
            known[part] = self._measure.drops(node.cue, part, node.chosen)
            is_idle = self._is_idle(known)
            if not is_idle and (is_asked or self._may_rely(known, measured, takers, share, classes)):
                known = values
                missing = measured[np.isnan(known[measured])]  # also of earlier looks that needed no control
                known[missing] = self._measure.effects(node.cue, missing, node.chosen)
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
        within = "" if parent is None else parent.cue.name
        return Judged(node.cue, verdict, effect, known, node.chosen, within, answer=answer, is_whole=node.is_whole)

    def _is_idle(self, values: Float[np.ndarray, " samples"]) -> bool:
        """Return whether a model does not rely on a cue, by the interval: neither in the mean nor in a few samples."""
        flips = flipped(values, max(FLIP, self._least))
        return flips < FEWEST_FLIPPED and effect_of(values, self._level / 2).high < self._least

    def _may_rely(
        self,
        values: Float[np.ndarray, " samples"],
        measured: Indices,
        takers: Indices,
        level: float,
        classes: Sequence[int],
    ) -> bool:
        """Return whether the last look may still say "relies", of all answers or of one alone; else the test ends."""
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

    def _looks(self, takers: Indices) -> list[Indices]:
        """Return samples in the order in which they are measured, in parts; of every cue the same ones come first."""
        everyone = np.random.default_rng(len(self._measure.answers)).permutation(len(self._measure.answers))
        order = everyone[np.isin(everyone, takers)]
        ends = [FIRST_LOOK * 2**i for i in range(len(order).bit_length()) if FIRST_LOOK * 2**i < len(order)]
        return np.split(order, ends)

    def _of_one_answer(
        self, values: Float[np.ndarray, " samples"], classes: Sequence[int], level: float
    ) -> tuple[int, Effect] | None:
        """Return the answer that the cue reveals, if it is one, and the effect on its samples."""
        answers = self._measure.answers
        found = [(each, effect_of(values[answers == each], level)) for each in classes]
        answer, effect = max(found, key=lambda pair: pair[1].low)
        share = float((answers == answer).sum()) / len(answers)
        is_sure = effect.low > self._least and effect.high * share > self._least
        return (answer, effect) if is_sure and effect.samples >= FEWEST_SAMPLES else None

    def _completed(self, judged: Judged) -> Judged:
        """Return a cue that is relied on, measured on the same `ENOUGH` samples as all others that may be named."""
        if judged.verdict != "relies" or judged.is_whole:
            return judged
        chosen = self._first(judged)
        judged.values[chosen] = self._measure.effects(judged.cue, chosen, judged.chosen)
        effect = effect_of(judged.values, self._level / 2)
        return replace(judged, effect=effect, verdict="relies" if effect.low > self._least else "inconclusive")

    def _first(self, judged: Judged) -> Indices:
        """Return the first `ENOUGH` samples that judge a cue."""
        answer = judged.answer
        takers = judged.chosen if answer is None else judged.chosen[self._measure.answers[judged.chosen] == answer]
        return np.concatenate(self._looks(takers))[:ENOUGH]

    def _size(self, cue: Cue) -> float:
        """Return which share of the places of all samples a cue takes; 1 of what lies everywhere."""
        if cue not in self._sizes:
            found = [cue.locate(collate([sample])) for sample in self._measure.samples]
            places = [each.flatten().float().cpu() for each in found if each is not None]
            self._sizes[cue] = float(torch.cat(places).mean()) if len(places) == len(found) else 1.0
        return self._sizes[cue]
