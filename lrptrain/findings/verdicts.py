"""From a candidate to a verdict: did the intervention move the prediction further than its control did?"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from lrptrain.findings.detector import get_detector
from lrptrain.findings.facts import STATES, Fact, fact_of, unfold
from lrptrain.findings.finding import Evidence, Finding, State
from lrptrain.findings.scopes import Scope
from lrptrain.findings.statistics import bootstrap_interval, holm, sign_flip_test

MIN_TESTED_SAMPLES = 5


class Effect(NamedTuple):
    """What an intervention did to the samples of a candidate.

    Attributes:
        change: How far the prediction moved when the region was changed, in [-1, 1]; nan where it was not tested.
        control: How far it moved under the control, in [-1, 1].
        strategy: What was done to the region; see `Finding.strategy`.
    """

    change: Float[np.ndarray, " n"]
    control: Float[np.ndarray, " n"]
    strategy: str = ""


def reach_verdicts(
    candidates: Sequence[Finding], effects: Sequence[Effect | str], min_effect: float, confidence: float = 0.95
) -> list[Finding]:
    """Confirm or refute every candidate, or leave it suspected.

    A finding is confirmed if the prediction moved further than under the control: by a paired sign-flip test at
    `1 - confidence` after Holm's correction over all candidates, by a bootstrap interval above 0, and by `min_effect`
    on average (or by the `least_effect` of its detector, if that is larger). It is refuted if the whole interval lies
    below that. Otherwise it stays suspected.

    Args:
        candidates: The findings to be tested.
        effects: The effect of the intervention on each, or the reason why there is none.
        min_effect: The least mean change of a probability that matters, in (0, 1).
        confidence: The level of intervals and tests, in (0, 1).

    Returns:
        The candidates in their order, with state, intervention and note.
    """
    differences = [_differences(effect) for effect in effects]
    tested = [i for i, values in enumerate(differences) if len(values) >= MIN_TESTED_SAMPLES]
    # One family of tests: with many classes, one of them would else be confirmed by chance in most evaluations.
    corrected = holm([sign_flip_test(-differences[i], 0.0) for i in tested])
    p_values = {i: float(p_value) for i, p_value in zip(tested, corrected, strict=True)}

    def verdict(i: int, candidate: Finding) -> Finding:
        effect = effects[i]
        if isinstance(effect, str):
            return replace(candidate, note=effect)
        if i not in p_values:
            return replace(candidate, note=f"too few samples to test it: {len(differences[i])}")
        mean, low, high = bootstrap_interval(differences[i], confidence)
        control = float(np.nanmean(effect.control))
        evidence = Evidence(mean, (low, high), control, p_values[i], len(differences[i]))
        least = max(min_effect, get_detector(candidate.kind).least_effect)
        # With the interval [ ], its mean o and the least effect |, all on a line from 0:
        #     0  [ | o ]   confirmed, if the corrected test agrees
        #   [ 0    | o ]   suspected: it may be nothing
        #     0  [ o | ]   suspected: it may be large enough
        #     0  [ o ] |   refuted: even the upper end is too small to matter
        sure = p_values[i] <= 1 - confidence and low > 0 and mean >= least
        state: State = "confirmed" if sure else "refuted" if high < least else "suspected"
        return replace(candidate, state=state, intervention=evidence, strategy=effect.strategy)

    return [verdict(i, candidate) for i, candidate in enumerate(candidates)]


def carry_over(previous: Sequence[Finding], current: Sequence[Finding]) -> list[Finding]:
    """Return current findings with `first_epoch` and `history` of the previous ones.

    Two findings are the same when kind, scope, target and, where the kind is named by it, place agree.

    Args:
        previous: The findings of the evaluation before, folded or not.
        current: Those of this evaluation, not folded.
    """
    before: dict[tuple[str, Scope, str, str], Finding] = {finding.identity: finding for finding in unfold(previous)}
    merged: list[Finding] = []
    for finding in current:
        old = before.get(finding.identity)
        first_epoch = finding.first_epoch if old is None else old.first_epoch
        earlier = () if old is None else old.history
        merged.append(replace(finding, first_epoch=first_epoch, history=(*earlier, finding.effect)))
    return merged


def news_among(previous: Sequence[Finding], current: Sequence[Finding]) -> list[Finding]:
    """Return the facts that are news: in another state than before, or found for the first time.

    That a class joins a fact that stands, or leaves it, is none, and neither is a place that is refuted at once: nobody
    has heard of it.

    Args:
        previous: The facts of the evaluation before.
        current: The facts of this evaluation.
    """
    before: dict[Fact, int] = {}
    for finding in unfold(previous):
        grave = STATES.index(finding.state)
        # A smaller index is a graver state: a fact is in the gravest state of its members.
        before[fact_of(finding)] = min(grave, before.get(fact_of(finding), grave))
    unheard = STATES.index("refuted")
    return [each for each in current if STATES.index(each.state) != before.get(fact_of(each), unheard)]


def _differences(effect: Effect | str) -> Float[np.ndarray, " m"]:
    """Return change less control of the samples that were tested."""
    if isinstance(effect, str):
        return np.empty(0)
    differences = np.asarray(effect.change, dtype=float) - np.asarray(effect.control, dtype=float)
    tested: Float[np.ndarray, " m"] = differences[~np.isnan(differences)]
    return tested
