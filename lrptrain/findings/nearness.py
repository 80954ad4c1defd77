"""How near an evaluation comes to a confirmed finding: it shows a trend before anything is flagged."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lrptrain.findings.detector import get_detector
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import OVERALL
from lrptrain.findings.statistics import bootstrap_interval, fewest_for_a_flag
from lrptrain.findings.verdicts import Effect, demanded_effect, demanded_exchange, differences_of

WORTH_SAYING = 0.5
"""An effect of a smaller share of what confirms it is not told in words."""


class Nearness(NamedTuple):
    """A test, and how near it came to what confirms a finding.

    Attributes:
        candidate: What was tested.
        effect: The mean effect.
        bound: The effect that confirms it.
    """

    candidate: Finding
    effect: float
    bound: float

    @property
    def ratio(self) -> float:
        """Return the effect over its bound."""
        return self.effect / self.bound

    def __str__(self) -> str:
        """Return a sentence, e.g. "Nearest to a flag: the edges of the image, 25 points where 35 confirm."."""
        scope = "" if self.candidate.scope == OVERALL else f" ({self.candidate.scope})"
        points = f"{round(100 * self.effect)} points where {round(100 * self.bound)} confirm"
        place = get_detector(self.candidate.kind).place(self.candidate)
        points += "" if self.ratio < 1 else ", but not surely"
        return f"Nearest to a flag: {place}{scope}, {points}."


def can_confirm(
    candidates: Sequence[Finding],
    effects: Sequence[Effect | str],
    confidence: float = 0.95,
    exchanges: Mapping[int, Effect | str] | None = None,
) -> bool:
    """Return whether any test has as many samples as it takes to confirm one among so many tests.

    Where none has, that nothing is confirmed says nothing of the model. Where nothing was to be tested, nothing was
    suspected, and that is an answer, too. The arguments are those of `nearest_test`.
    """
    made = [*effects, *(exchanges or {}).values()]
    return not made or any(
        len(differences_of(each)) >= _fewest(candidates, exchanges or {}, confidence) for each in made
    )


def _fewest(candidates: Sequence[Finding], exchanges: Mapping[int, Effect | str], confidence: float) -> int:
    return fewest_for_a_flag(max(1, len(candidates) + len(exchanges)), confidence)


def nearest_test(
    candidates: Sequence[Finding],
    effects: Sequence[Effect | str],
    min_effect: float,
    confidence: float = 0.95,
    exchanges: Mapping[int, Effect | str] | None = None,
) -> Nearness | None:
    """Return the test whose mean effect is the largest share of the effect that confirms.

    A verdict has a bound, and says nothing of what lies just below it. This has none: of everything that was tested,
    reported or not, it takes the effect that comes nearest to its bound, or exceeds it furthest.

    Args:
        candidates: As for `reach_verdicts`.
        effects: As for `reach_verdicts`.
        min_effect: As for `reach_verdicts`.
        confidence: As for `reach_verdicts`.
        exchanges: As for `reach_verdicts`.

    Returns:
        None where no effect counts. One counts if its interval lies above 0, and if it was seen in as many samples as
        it takes to confirm one among so many tests. So confirmed findings have a ratio of 1 or more; what has 1 or more
        may still lack a p-value that is small enough.
    """
    exchanges = exchanges or {}
    fewest = _fewest(candidates, exchanges, confidence)

    def nearness(i: int, effect: Effect | str, bound: float) -> list[Nearness]:
        differences = differences_of(effect)
        if len(differences) < fewest:
            return []
        mean, low, _ = bootstrap_interval(differences, confidence)
        return [Nearness(candidates[i], mean, bound)] if low > 0 else []

    bounds = [demanded_effect(each, min_effect) for each in candidates]
    tests = [each for i, effect in enumerate(effects) for each in nearness(i, effect, bounds[i])]
    for i, effect in exchanges.items():
        tests += nearness(i, effect, demanded_exchange(candidates[i], min_effect))
    return max(tests, key=lambda test: test.ratio, default=None)
