"""From a candidate to a verdict: did the intervention move the prediction further than its control did?"""

from collections.abc import Mapping, Sequence
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
REMOVALS = ("inpaint", "fill", "delete")
"""What takes a place away, and puts nothing in its place that speaks for another class."""
LEAST_EXCHANGE = 0.3
"""The least mean change of a probability that confirms a finding by an exchange of its place, where the configuration
does not demand more: a part of the object may lie there, of which nobody has said that it is evidence."""
LEAST_EXCHANGE_BESIDE_EVIDENCE = 0.15
"""The same in images whose evidence is annotated, and lies elsewhere. A dot that guidance had not removed moved answers
by 17 and 18 points, and cost 23 points of accuracy."""


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
    candidates: Sequence[Finding],
    effects: Sequence[Effect | str],
    min_effect: float,
    confidence: float = 0.95,
    exchanges: Mapping[int, Effect | str] | None = None,
) -> list[Finding]:
    """Confirm or refute every candidate, or leave it suspected.

    A finding is confirmed if the prediction moved further than under the control: by a paired sign-flip test at
    `1 - confidence` after Holm's correction over all tests, by a bootstrap interval above 0, and by `min_effect` on
    average (or by the `least_effect` of its detector, if that is larger). It is refuted if the whole interval lies
    below what matters (see `least_that_matters`). Otherwise it stays suspected.

    A swap alone refutes. Taking a cue away moves nothing where another one says the same (a redundant cue), so that
    what was only removed without effect is `unconfirmed`; a cue of another class in its place does move the prediction.

    Args:
        candidates: The findings to be tested.
        effects: The effect of the intervention on each, or the reason why there is none.
        min_effect: The least mean change of a probability that matters, in (0, 1).
        confidence: The level of intervals and tests, in (0, 1).
        exchanges: By the index of those candidates whose place can be exchanged between samples, the effect of that, or
            the reason why there is none (yet). Each counts as a test, made or not: what the removal confirms is so
            confirmed whether others are exchanged or not. An exchange confirms from `demanded_exchange` on.

    Returns:
        The candidates in their order, with state, intervention and note.
    """
    exchanges = exchanges or {}
    removal = _Tests(effects, confidence)
    exchange = _Tests([exchanges.get(i, "") for i in range(len(candidates))], confidence)
    # One family of tests: with many classes, one of them would else be confirmed by chance in most evaluations.
    not_made = [1.0] * len([i for i in exchanges if i not in exchange.tested])
    corrected = holm([*removal.p_values, *exchange.p_values, *not_made])
    removal.p_values = corrected[: len(removal.tested)].tolist()
    exchange.p_values = corrected[len(removal.tested) :].tolist()

    def verdict(i: int, candidate: Finding) -> Finding:
        effect = effects[i]
        if isinstance(effect, str):
            return replace(candidate, note=effect)
        if i not in removal.tested:
            return replace(candidate, note=f"too few samples to test it: {removal.count(i)}")
        least = demanded_effect(candidate, min_effect)
        matters = least_that_matters(candidate, min_effect)
        first = removal.judged(i, candidate, (matters, least))
        exchanged = exchanges.get(i, "")
        if first.state == "confirmed":
            return first
        if i in exchange.tested:
            second = exchange.judged(i, candidate, (matters, demanded_exchange(candidate, min_effect)))
            # Refuted by both, or else what the one that is not refuted says.
            return first if second.state == "refuted" and first.state == "suspected" else second
        if first.state == "refuted" and effect.strategy in REMOVALS:
            return replace(first, state="unconfirmed", note=exchanged if isinstance(exchanged, str) else "")
        return first

    return [verdict(i, candidate) for i, candidate in enumerate(candidates)]


class _Tests:
    """The tests of one intervention on the candidates.

    Attributes:
        tested: The indices of the candidates with enough samples, in ascending order.
        p_values: The p-value of each of these.
    """

    def __init__(self, effects: Sequence[Effect | str], confidence: float) -> None:
        self.effects = effects
        self.confidence = confidence
        self.differences = [differences_of(effect) for effect in effects]
        self.tested = [i for i in range(len(effects)) if self.count(i) >= MIN_TESTED_SAMPLES]
        self.p_values = [sign_flip_test(-self.differences[i], 0.0) for i in self.tested]

    def count(self, i: int) -> int:
        """Return in how many samples a candidate was tested."""
        return len(self.differences[i])

    def judged(self, i: int, candidate: Finding, least: tuple[float, float]) -> Finding:
        """Return a tested candidate with its state and the evidence for it.

        Args:
            i: The index of the candidate.
            candidate: The candidate.
            least: The mean effect below which it is refuted, and from which on it is confirmed.
        """
        effect = self.effects[i]
        assert not isinstance(effect, str)
        p_value = self.p_values[self.tested.index(i)]
        mean, low, high = bootstrap_interval(self.differences[i], self.confidence)
        evidence = Evidence(mean, (low, high), float(np.nanmean(effect.control)), p_value, self.count(i))
        # With the interval [ ], its mean o and the least effect |, all on a line from 0:
        #     0  [ | o ]   confirmed, if the corrected test agrees
        #   [ 0    | o ]   suspected: it may be nothing
        #     0  [ o | ]   suspected: it may be large enough
        #     0  [ o ] |   refuted: even the upper end is too small to matter
        sure = p_value <= 1 - self.confidence and low > 0 and mean >= least[1]
        state: State = "confirmed" if sure else "refuted" if high < least[0] else "suspected"
        return replace(candidate, state=state, intervention=evidence, strategy=effect.strategy)


def carry_over(previous: Sequence[Finding], current: Sequence[Finding]) -> list[Finding]:
    """Return current findings with `first_epoch`, `history` and `states` of the previous ones.

    Two findings are the same when kind, scope, target and, where the kind is named by it, place agree. For the states
    it need not be the same kind, but the same fact: whether the maps suspect the surroundings too changes the kind.

    Args:
        previous: The findings of the evaluation before, folded or not.
        current: Those of this evaluation, not folded.
    """
    before: dict[tuple[str, Scope, str, str], Finding] = {finding.identity: finding for finding in unfold(previous)}
    # Older records know no more than the last state.
    before_states = {_fact_in_scope(each): each.states or (each.state,) for each in before.values()}
    merged: list[Finding] = []
    for finding in current:
        old = before.get(finding.identity)
        first_epoch = finding.first_epoch if old is None else old.first_epoch
        earlier = () if old is None else old.history
        states = (*before_states.get(_fact_in_scope(finding), ()), finding.state)
        merged.append(replace(finding, first_epoch=first_epoch, history=(*earlier, finding.effect), states=states))
    return merged


def _fact_in_scope(finding: Finding) -> tuple[Fact, Scope, str]:
    return fact_of(finding), finding.scope, finding.target


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

    def is_news(finding: Finding) -> bool:
        grave = STATES.index(finding.state)
        if fact_of(finding) in before:
            return grave != before[fact_of(finding)]
        return finding.stands

    return [each for each in current if is_news(each)]


def demanded_effect(candidate: Finding, min_effect: float) -> float:
    """Return the least mean effect that confirms a candidate: its detector may demand more than `min_effect`."""
    return max(min_effect, get_detector(candidate.kind).least_effect_of(candidate))


def demanded_exchange(candidate: Finding, min_effect: float) -> float:
    """Return the least mean effect of an exchange of its place that confirms a candidate."""
    least = LEAST_EXCHANGE_BESIDE_EVIDENCE if candidate.beside_evidence else LEAST_EXCHANGE
    return max(demanded_effect(candidate, min_effect), least)


def least_that_matters(candidate: Finding, min_effect: float) -> float:
    """Return the mean effect below which a candidate is refuted.

    That is what would confirm it, unless its kind is reported unconfirmed: to call refuted what moves the prediction by
    more than `min_effect` would be wrong, also where its detector demands more before it is sure of a shortcut.
    """
    return min_effect if get_detector(candidate.kind).reported_unconfirmed else demanded_effect(candidate, min_effect)


def differences_of(effect: Effect | str) -> Float[np.ndarray, " m"]:
    """Return change less control of the samples that were tested."""
    if isinstance(effect, str):
        return np.empty(0)
    differences = np.asarray(effect.change, dtype=float) - np.asarray(effect.control, dtype=float)
    tested: Float[np.ndarray, " m"] = differences[~np.isnan(differences)]
    return tested
