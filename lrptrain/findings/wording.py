"""Findings in words: shares as percentages, and the sentences that most kinds of findings have in common."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lrptrain.findings.finding import Evidence, Finding


def relevance_sentence(finding: "Finding", place: str, reference: str) -> str:
    """Return how much of the relevance lies somewhere, such as `12 % of the relevance lies on the border (...)`.

    Args:
        finding: The finding.
        place: Where the relevance lies, in words.
        reference: What it is compared with, in words that the number follows.
    """
    evidence = finding.relevance
    if evidence is None:
        return "the map does not show it"
    low, high = evidence.interval
    return (
        f"{percent(evidence.effect)} of the relevance lies on {place} "
        f"({percent(finding.confidence)} interval {points(low)}-{percent(high)}; "
        f"{reference} {percent(evidence.reference)}{_demanded(finding)}{p_value(evidence)})"
    )


def intervention_sentence(finding: "Finding", region: str) -> str:
    """Return how far an intervention moved the prediction; "" if there was none.

    Args:
        finding: The finding.
        region: What the intervention changed, in words.
    """
    evidence = finding.intervention
    if evidence is None:
        return ""
    low, high = evidence.interval
    return (
        f"changing {region} moves the prediction by {points(evidence.effect + evidence.reference)} points, "
        f"the control by {points(evidence.reference)} (difference {points(low)} to {points(high)}{p_value(evidence)})"
    )


def share_there(finding: "Finding") -> str:
    """Return how much of the relevance lies at a place, such as `59 % of the relevance is there, on 11 % of ...`."""
    evidence = finding.relevance
    if evidence is None:
        return ""
    return f"{percent(evidence.effect)} of the relevance is there, on {_area(finding, evidence)}."


def share_on_annotation(finding: "Finding") -> str:
    """Return how much of the relevance lies on the annotation, beside how much of the input that is."""
    evidence = finding.relevance
    if evidence is None:
        return ""
    return f"{percent(evidence.effect)} of the relevance is on the annotation, which is {_area(finding, evidence)}."


def _area(finding: "Finding", evidence: "Evidence") -> str:
    """Return how much of what a place is, such as `11 % of the image`."""
    return f"{percent(evidence.reference)} of the {finding.medium or 'input'}"


def points(share: float) -> str:
    """Return a share in percentage points, with a decimal only where a small share would read as 0."""
    return f"{100 * share:.1f}" if 0.0005 < abs(share) < 0.01 else f"{100 * round(share, 2) + 0.0:.0f}"


def percent(share: float) -> str:
    """Return a share as `12 %`."""
    return f"{points(share)} %"


def p_value(evidence: "Evidence") -> str:
    """Return `; p = 0.01`, or "" where nothing was tested."""
    return "" if math.isnan(evidence.p_value) else f"; p = {evidence.p_value:.2g}"


def _demanded(finding: "Finding") -> str:
    """Return `; bound 50 %` where another share than that of a uniform map was demanded."""
    assert finding.relevance is not None
    return "" if finding.bound in (None, finding.relevance.reference) else f"; bound {percent(finding.bound or 0)}"
