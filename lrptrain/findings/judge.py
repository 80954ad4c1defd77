"""From suspicion to verdict: did the intervention move the prediction further than its control did?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from lrptrain.findings.finding import RELIANCE, Evidence, Finding
from lrptrain.findings.statistics import bootstrap_interval, holm, share_test

LEAST_SAMPLES = 5
LEAST_RELIANCE = 0.3
"""What no map shows is confirmed by a larger effect: what people mark is hardly ever all the evidence there is, so
that a sound model leans on the rest, too."""


class Effect(NamedTuple):
    """What an intervention did to the samples of a finding.

    Attributes:
        change: How far the prediction moved when the suspected region was changed, in [-1, 1]; nan where untested.
        control: How far it moved under the control.
    """

    change: Float[np.ndarray, " n"]
    control: Float[np.ndarray, " n"]


def judge(
    suspects: Sequence[Finding], effects: Sequence[Effect | str], min_effect: float, confidence: float = 0.95
) -> list[Finding]:
    """Confirm or refute each suspect.

    Confirmed: the prediction moved further than under the control, by a paired sign-flip test at `1 - confidence`
    after Holm's correction over all suspects, by a bootstrap interval above 0, and by `min_effect` on average,
    `LEAST_RELIANCE` for what no map shows. Refuted: the whole interval lies below that. Between them it stays
    suspected.

    Args:
        suspects: To be judged.
        effects: Of each, or why it could not be tested.
        min_effect: The least mean change of a probability that matters, in (0, 1).
        confidence: Of intervals and tests.

    Returns:
        The suspects in their order, with state, intervention and note.
    """
    differences = [_difference(effect) for effect in effects]
    tested = [i for i, difference in enumerate(differences) if len(difference) >= LEAST_SAMPLES]
    p_values = dict(zip(tested, holm([share_test(-differences[i], 0.0) for i in tested]), strict=True))

    def judged(i: int, suspect: Finding) -> Finding:
        effect = effects[i]
        if isinstance(effect, str):
            return replace(suspect, note=effect)
        if i not in p_values:
            return replace(suspect, note=f"too few samples to test it: {len(differences[i])}")
        mean, low, high = bootstrap_interval(differences[i], confidence)
        p_value, sure = float(p_values[i]), 1 - confidence
        control = float(np.nanmean(effect.control))
        evidence = Evidence(mean, (low, high), control, p_value, len(differences[i]))
        least = max(min_effect, LEAST_RELIANCE) if suspect.kind == RELIANCE else min_effect
        if p_value <= sure and low > 0 and mean >= least:
            return replace(suspect, state="confirmed", intervention=evidence)
        return replace(suspect, state="refuted" if high < least else "suspected", intervention=evidence)

    return [judged(i, suspect) for i, suspect in enumerate(suspects)]


def merge_findings(previous: Sequence[Finding], current: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Carry over since when each finding has stood, and its effects.

    Two findings are the same when kind, scope, target and, where it has a name, place agree.

    Args:
        previous: The findings of the evaluation before.
        current: The findings of this evaluation.

    Returns:
        All current findings, with `first_epoch` and `history` of the previous ones; and those among them that are
        news: in another state than before, or found for the first time and not refuted at once. In the order of
        `current`.
    """
    known: Mapping[tuple[str, ...], Finding] = {finding.identity: finding for finding in previous}

    def merged(finding: Finding) -> Finding:
        before = known.get(finding.identity)
        first = before.first_epoch if before is not None else finding.first_epoch
        history = (*(before.history if before is not None else ()), finding.effect)
        return replace(finding, first_epoch=first, history=history)

    everything = [merged(finding) for finding in current]
    old = {identity: finding.state for identity, finding in known.items()}
    return everything, [finding for finding in everything if old.get(finding.identity, "refuted") != finding.state]


def _difference(effect: Effect | str) -> Float[np.ndarray, " m"]:
    if isinstance(effect, str):
        return np.empty(0)
    difference = np.asarray(effect.change, dtype=float) - np.asarray(effect.control, dtype=float)
    return difference[~np.isnan(difference)]
