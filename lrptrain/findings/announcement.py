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
_PLURALS = {"class": "classes", "group": "groups"}


def announce(findings: Iterable[Finding]) -> list[str]:
    """Return one paragraph per fact, the confirmed ones first and the gravest of them at the top.

    Findings of one kind and place are one fact, whatever their classes and targets: it is told for all samples together
    if they show it, else for the class that shows it most, and names the others. What was refuted is another fact.

    Returns:
        Paragraphs of several lines, at most 80 columns wide, without an end of line.
    """
    facts: dict[tuple[bool, str, str], list[Finding]] = {}
    for finding in findings:
        place = finding.where if get_detector(finding.kind).named_by_place else ""
        facts.setdefault((finding.state == "refuted", finding.kind, place), []).append(finding)
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


def _likewise(finding: Finding, others: Sequence[Finding]) -> str:
    """Return in which classes and groups the same was seen, and where it is only suspected."""
    alike = [each.scope for each in others if each.state == finding.state]
    suspected = [each.scope for each in others if each.state != finding.state]
    # Maps for the label and for the predicted class mostly show the same: a scope is named once.
    first = list(dict.fromkeys(scope for scope in alike if scope != finding.scope))
    second = list(dict.fromkeys(scope for scope in suspected if scope not in (finding.scope, *first)))
    sentences = (("Also in", first), ("Suspected in", second))
    return " ".join(f"{words} {_named(scopes)}." for words, scopes in sentences if scopes)


def _named(scopes: Sequence[Scope]) -> str:
    """Return scopes such as `class dog`, `classes dog and fox` or `class dog and group 1`."""
    kinds = {scope.kind for scope in scopes}
    if len(scopes) > 1 and len(kinds) == 1:
        return f"{_PLURALS[scopes[0].kind]} {_listed([scope.name for scope in scopes])}"
    return _listed([str(scope) for scope in scopes])


def _listed(names: Sequence[str]) -> str:
    """Return names as `a, b and c`, the last of many as a number."""
    shown = [*names] if len(names) <= MOST_NAMES else [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
