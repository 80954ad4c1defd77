"""The findings of an evaluation as a table, for loggers that show one."""

import math
from collections.abc import Sequence
from typing import Any

from lrptrain.findings import OVERALL, Evidence, Finding
from lrptrain.findings.sentences import sentences

_NONE = Evidence(math.nan, (math.nan, math.nan), math.nan, math.nan, 0)
_IN_MARKDOWN = ("state", "kind", "scope", "where", "target", "severity", "samples", "first_epoch", "worst_samples")


def findings_table(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    """Return one row per finding, by column; what is not known is None.

    Columns: `state`, `kind`, `scope`, `where`, `target`; `relevance` and `intervention` (see `Finding`), each with
    `_low`, `_high`, `_p`, and `_reference`; `severity`, `samples`, `first_epoch`, `trend`, `worst_samples`, `also` (the
    further scopes of the same fact) and `text`.
    """
    rows = [_row(finding) for finding in findings]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {name: [] for name in _row(_EMPTY)}


def findings_markdown(findings: Sequence[Finding]) -> str:
    """Return the same table in Markdown, with each number and its interval in one column."""
    if not findings:
        return "No finding stands."
    heading = [name.replace("_", " ") for name in (*_IN_MARKDOWN[:5], "relevance", "intervention", *_IN_MARKDOWN[5:])]
    lines = [heading, ["---"] * len(heading), *(_cells(finding) for finding in findings)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def finding_text(finding: Finding) -> str:
    """Return what is said of a finding in one paragraph, with its intervals and p-values at the end."""
    text = sentences(finding)
    details = str(finding).split(": ", 1)[-1]
    remedy = f"Mend: {text.remedy}." if text.remedy else ""
    excerpt = f"{text.excerpt}." if text.excerpt else ""
    evidence = (text.intervention, text.relevance, text.likewise, excerpt)
    parts = (text.verdict, *evidence, remedy, f"In detail: {details}")
    return " ".join(part for part in parts if part)


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "state": finding.state,
        "kind": finding.kind,
        "scope": str(finding.scope),
        "where": finding.where,
        "target": finding.target,
        **_numbers("relevance", finding.relevance),
        **_numbers("intervention", finding.intervention),
        "severity": finding.severity,
        "samples": finding.samples,
        "first_epoch": finding.first_epoch,
        "trend": finding.trend,
        "worst_samples": ", ".join(map(str, finding.worst_samples)),
        "also": ", ".join(dict.fromkeys(str(each.scope) for each in finding.also if each.state == finding.state)),
        "text": finding_text(finding),
    }


def _numbers(name: str, evidence: Evidence | None) -> dict[str, float | None]:
    # A finding without an intervention has the same columns, all of them None.
    known_evidence = evidence or _NONE
    numbers = {
        name: known_evidence.effect,
        f"{name}_low": known_evidence.interval[0],
        f"{name}_high": known_evidence.interval[1],
        f"{name}_p": known_evidence.p_value,
        f"{name}_reference": known_evidence.reference,
    }
    return {key: float(value) if math.isfinite(value) else None for key, value in numbers.items()}


def _cells(finding: Finding) -> list[str]:
    row = _row(finding)
    cells = [_plain(row[name]) for name in _IN_MARKDOWN]
    return [*cells[:5], _estimate(finding.relevance), _estimate(finding.intervention), *cells[5:]]


def _plain(value: Any) -> str:
    """In one cell of a Markdown table."""
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _estimate(evidence: Evidence | None) -> str:
    if evidence is None:
        return ""
    low, high = evidence.interval
    p_value = evidence.p_value
    tested = "" if math.isnan(p_value) else f", p = {p_value:.2g}"
    return f"{evidence.effect:.3g} ({low:.3g} to {high:.3g}; reference {evidence.reference:.3g}{tested})"


# A table without rows still has its columns: they are those of this finding.
_EMPTY = Finding("", OVERALL, "", relevance=_NONE, confidence=0.95, epoch=0, step=0, first_epoch=0)
