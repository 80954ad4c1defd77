"""How near an evaluation comes to a confirmed finding, as one number: it shows a trend before anything is flagged."""

from collections.abc import Mapping, Sequence

from lrptrain.findings.finding import Finding
from lrptrain.findings.statistics import bootstrap_interval, fewest_for_a_flag
from lrptrain.findings.verdicts import LEAST_EXCHANGE, Effect, demanded_effect, differences_of


def effect_ratio(
    candidates: Sequence[Finding],
    effects: Sequence[Effect | str],
    min_effect: float,
    confidence: float = 0.95,
    exchanges: Mapping[int, Effect | str] | None = None,
) -> float:
    """Return the largest mean effect of all tests over the effect that confirms.

    A verdict has a bound, and says nothing of what lies just below it. This number has none: of everything that was
    tested, reported or not, it takes the effect that comes nearest to its bound, or exceeds it furthest.

    Args:
        candidates: As for `reach_verdicts`.
        effects: As for `reach_verdicts`.
        min_effect: As for `reach_verdicts`.
        confidence: As for `reach_verdicts`.
        exchanges: As for `reach_verdicts`.

    Returns:
        At least 0. An effect counts if its interval lies above 0, and if it was seen in as many samples as it takes to
        confirm one among so many tests. So confirmed findings have 1 or more; what has 1 or more may still lack a
        p-value that is small enough.
    """
    exchanges = exchanges or {}
    fewest = fewest_for_a_flag(max(1, len(candidates) + len(exchanges)), confidence)

    def ratio(effect: Effect | str, bound: float) -> float:
        differences = differences_of(effect)
        if len(differences) < fewest:
            return 0.0
        mean, low, _ = bootstrap_interval(differences, confidence)
        return mean / bound if low > 0 else 0.0

    bounds = [demanded_effect(each, min_effect) for each in candidates]
    removed = [ratio(effect, bound) for effect, bound in zip(effects, bounds, strict=True)]
    exchanged = [ratio(effect, max(bounds[i], LEAST_EXCHANGE)) for i, effect in exchanges.items()]
    return max([*removed, *exchanged], default=0.0)
