"""From what was measured to a verdict on a method, in plain words. Without a measurement there is no verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lrptrain.auditing.base import AuditTest, Check
from lrptrain.auditing.score import Score, summarize
from lrptrain.batch.matters import FEWEST_SAMPLES

Faithful = Literal["yes", "weakly", "no", "not judged"]
LEVELS: dict[Faithful, float] = {"yes": 1.0, "weakly": 0.5, "no": 0.0, "not judged": float("nan")}
"""The verdicts as numbers, for loggers."""


@dataclass(frozen=True)
class Verdict:
    """Whether a method is faithful on a model.

    Attributes:
        method: Name of the method.
        faithful: "yes": it passes every test that decides a verdict. "weakly": it fails one that is not decisive.
            "no": it fails a decisive one. "not judged": something was not measured.
        reasons: Why, a clause per test.
        numbers: Mean and 95 % t interval over samples, by the name of the test.
    """

    method: str
    faithful: Faithful
    reasons: tuple[str, ...]
    numbers: Mapping[str, Score] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method}: faithful on this model: {self.faithful} ({'; '.join(self.reasons)})"


def reach_verdict(
    method: str,
    tests: Sequence[AuditTest],
    measured: Mapping[str, Sequence[float]],
    missing: Mapping[str, str] | None = None,
    obstacle: str = "",
) -> Verdict:
    """Return the verdict on a method, by the tests that decide verdicts.

    A decisive failure makes a "no", whatever was not measured. Else everything must have been measured: one failure
    or more makes "weakly", none makes "yes".

    Args:
        method: Name of the method.
        tests: All tests; those without `decides_verdict` are not asked.
        measured: One value per sample, by the name of the test.
        missing: Why a test has no values, by its name.
        obstacle: Why no verdict is possible on these data, whatever was measured; empty if it is.
    """
    deciding = [test for test in tests if test.decides_verdict]
    numbers = {test.name: summarize(measured[test.name]) for test in deciding if test.name in measured}
    if obstacle:
        return Verdict(method, "not judged", (obstacle,), numbers)
    gaps: list[str] = []
    checks: list[Check] = []
    for test in deciding:
        score = numbers.get(test.name)
        if score is None:
            gaps.append(f"{test.name} was not measured: {(missing or {}).get(test.name, 'it was not chosen')}")
        elif score.samples < FEWEST_SAMPLES:
            gaps.append(f"{test.name} has {score.samples} samples, but at least {FEWEST_SAMPLES} are needed")
        else:
            checks.append(test.check(score))
    reasons = tuple(check.reason for check in checks)
    failures = [check for check in checks if not check.passed]
    # Before the gaps: a decisive failure stands, whatever else would have been measured.
    if any(check.decisive for check in failures):
        return Verdict(method, "no", reasons, numbers)
    if gaps:
        return Verdict(method, "not judged", (*gaps, *reasons), numbers)
    return Verdict(method, "weakly" if failures else "yes", reasons, numbers)
