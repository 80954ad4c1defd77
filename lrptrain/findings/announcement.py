"""Findings for a terminal: first what is wrong, then the evidence; intervals and p-values are in the record."""

import textwrap
from collections.abc import Iterable, Sequence

from lrptrain.findings.detector import get_detector
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import OVERALL, Scope
from lrptrain.findings.wording import percent, points

WIDTH = 80
"""The columns of a terminal."""
MOST_NAMES = 6
"""So many classes are named; more are counted."""
_VERDICTS = {
    "confirmed": "SHORTCUT confirmed, {scope}: the model relies on {place}.",
    "suspected": "Suspected, {scope}: the maps point at {place}.",
    "refuted": "Refuted, {scope}: the model does not rely on {place}.",
}
_STATES = tuple(_VERDICTS)


def announce(findings: Iterable[Finding]) -> list[str]:
    """Return one paragraph per fact, the confirmed ones first and the gravest of them at the top.

    Findings of one kind, place and state are one fact, whatever their classes and targets: it is told for all samples
    together if they show it, else for the class that shows it most, and names the others.

    Returns:
        Paragraphs of several lines, at most 80 columns wide, without an end of line.
    """
    facts: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        place = finding.where if get_detector(finding.kind).named_by_place else ""
        facts.setdefault((finding.state, finding.kind, place), []).append(finding)
    ranked = [sorted(fact, key=_rank) for fact in facts.values()]
    return [_paragraph(fact) for fact in sorted(ranked, key=lambda fact: _rank(fact[0]))]


def _rank(finding: Finding) -> tuple[int, bool, float, float]:
    """Return what puts findings in order: state, all samples before classes, the effect, the share of relevance."""
    share = finding.relevance.effect if finding.relevance is not None else 0.0
    return _STATES.index(finding.state), finding.scope != OVERALL, -finding.severity, share


def _paragraph(fact: Sequence[Finding]) -> str:
    """Return the text of findings of which the first speaks for all."""
    finding = fact[0]
    detector = get_detector(finding.kind)
    verdict = _VERDICTS[finding.state].format(scope=_scope_name(finding.scope), place=detector.place(finding))
    likewise = _likewise(finding, fact[1:])
    counted = f"{finding.samples} samples, since epoch {finding.first_epoch}."
    worst = f"See samples {', '.join(map(str, finding.worst_samples))}." if finding.worst_samples else ""
    evidence = (_moved(finding), _relevance(finding), likewise, f"{counted} {worst}".strip())
    lines = [
        textwrap.fill(verdict, WIDTH, subsequent_indent="  "),
        *(textwrap.fill(f"  {line}", WIDTH, subsequent_indent="  ") for line in evidence if line),
    ]
    return "\n".join(lines)


def _scope_name(scope: Scope) -> str:
    return "all classes" if scope == OVERALL else str(scope)


def _moved(finding: Finding) -> str:
    """Return how far the intervention moved the prediction, or why there was none."""
    evidence = finding.intervention
    if evidence is None:
        return f"Not tested: {finding.note}." if finding.note else "No intervention has tested it."
    change = get_detector(finding.kind).change
    moved = points(evidence.effect + evidence.reference)
    return f"{change}, the prediction moves by {moved} points (control: {points(evidence.reference)})."


def _relevance(finding: Finding) -> str:
    """Return how much of the relevance lies where, beside what a uniform map has there."""
    evidence = finding.relevance
    if evidence is None:
        return "The maps do not show it."
    return get_detector(finding.kind).share_sentence(percent(evidence.effect), percent(evidence.reference))


def _likewise(finding: Finding, others: Iterable[Finding]) -> str:
    """Return in which classes and groups the same was seen."""
    # Maps for the label and for the predicted class mostly show the same: a scope is named once.
    scopes = list(dict.fromkeys(each.scope for each in others if each.scope != finding.scope))
    if not scopes:
        return ""
    names = [str(scope) for scope in scopes[:MOST_NAMES]]
    more = len(scopes) - len(names)
    return f"Also in {', '.join(names)}{f' and {more} more' if more > 0 else ''}."
