"""From what was measured to a verdict on a method, in plain words. No measurement, no verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from lrptrain.audit.comparison import Score
from lrptrain.metrics.interval import mean_with_interval, moments_by_row

Faithful = Literal["yes", "weakly", "no", "not judged"]
LEVELS: dict[Faithful, float] = {"yes": 1.0, "weakly": 0.5, "no": 0.0, "not judged": float("nan")}
"""The verdicts as numbers, for loggers."""

ENOUGH = 8
"""Samples that a verdict needs: below, the t interval rests on a guess of the spread."""
CHANGED = 0.5
"""A map has changed with the weights if its mean absolute rank correlation with the original lies below this: less than
a quarter of the ranks' variance is then left."""
IGNORED = 0.9
"""Above this, the map is about the same for a model that knows nothing: it is no statement about this model."""

TESTS = {
    "perturbation": "gain over random orders when the relevant is removed",
    "leave_one_out": "Kendall's tau with leave-one-out",
    "randomisation": "rank correlation with the map of lost weights",
}
"""What a verdict rests on: the names of the tests, and what each measures."""


@dataclass(frozen=True)
class Verdict:
    """Is a method faithful on this model?

    Attributes:
        method: Its name.
        faithful: "yes": its order beats random orders, it agrees with leave-one-out, and it depends on the weights.
            "weakly": its order beats random orders, and one or both of the others fail. "no": its order does not, or
            the map ignores the weights. "not judged": something was not measured.
        reasons: Why, a clause per test.
        numbers: Mean and 95 % t interval over samples, by the name of the test; see `TESTS`.
    """

    method: str
    faithful: Faithful
    reasons: tuple[str, ...]
    numbers: Mapping[str, Score] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method}: faithful on this model: {self.faithful} ({'; '.join(self.reasons)})"


def summary(values: Sequence[float]) -> Score:
    """Mean of the values with its 95 % t interval; nan is left out."""
    column = torch.tensor(values, dtype=torch.float64)
    found = mean_with_interval(moments_by_row(column, torch.zeros(len(column), dtype=torch.long), 1))
    value, low, high = (float(found[name][0]) for name in ("value", "low", "high"))
    return Score(value, low, high, int((~column.isnan()).sum()))


def judge(
    method: str, measured: Mapping[str, Sequence[float]], missing: Mapping[str, str] | None = None, obstacle: str = ""
) -> Verdict:
    """The verdict on a method.

    - *Perturbation* decides: if the interval of the gain over random orders does not lie above 0, the answer is no.
    - *Randomisation*: so it is if the map stays about the same when the weights are lost (above `IGNORED`).
    - *Leave-one-out* (the interval of tau lies above 0) and *randomisation* (below `CHANGED`) together make a yes; if
      one fails, weakly. (For the method `leave_one_out`, the reference is the method.)

    Args:
        method: Its name.
        measured: One value per sample, by the name of the test; see `TESTS`.
        missing: Why a test has no values.
        obstacle: Why no verdict is possible on these data whatever was measured; empty if it is.
    """
    numbers = {test: summary(measured[test]) for test in TESTS if test in measured}
    if obstacle:
        return Verdict(method, "not judged", (obstacle,), numbers)
    gaps = _gaps(numbers, missing or {})
    checks = {test: _CHECKS[test](score) for test, score in numbers.items() if test not in gaps}
    reasons = tuple(said for _, said in checks.values())
    failed = {test for test, (passed, _) in checks.items() if not passed}
    ignores = "randomisation" in checks and numbers["randomisation"].value > IGNORED
    if "perturbation" in failed or ignores:
        return Verdict(method, "no", reasons, numbers)
    if gaps:
        return Verdict(method, "not judged", (*gaps.values(), *reasons), numbers)
    return Verdict(method, "weakly" if failed else "yes", reasons, numbers)


def _gaps(numbers: Mapping[str, Score], missing: Mapping[str, str]) -> dict[str, str]:
    """By test, why it cannot be counted."""
    gaps = {}
    for test in TESTS:
        if test not in numbers:
            gaps[test] = f"{test} was not measured: {missing.get(test, 'it was not chosen')}"
        elif numbers[test].samples < ENOUGH:
            gaps[test] = f"{test} has {numbers[test].samples} samples, at least {ENOUGH} are needed"
    return gaps


def _beats_random(gain: Score) -> tuple[bool, str]:
    passed = gain.low > 0
    return passed, f"its order {'beats' if passed else 'does not beat'} random orders: gain {said(gain)}"


def _agrees(tau: Score) -> tuple[bool, str]:
    passed = tau.low > 0
    return passed, f"it {'agrees' if passed else 'does not agree'} with leave-one-out: tau {said(tau)}"


def _changes(left: Score) -> tuple[bool, str]:
    passed = left.value < CHANGED
    how = "changes" if passed else "hardly changes" if left.value <= IGNORED else "does not change"
    return passed, f"it {how} when the weights are lost: rank correlation {said(left)}"


_CHECKS = {"perturbation": _beats_random, "leave_one_out": _agrees, "randomisation": _changes}


def said(score: Score) -> str:
    """A mean with its interval."""
    return f"{score.value:.2f} [{score.low:.2f}, {score.high:.2f}]"
