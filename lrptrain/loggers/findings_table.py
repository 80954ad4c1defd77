"""The findings of an evaluation as a table, for loggers that show one."""

import math
from collections.abc import Sequence
from typing import Any

from lrptrain.findings import Finding

_COLUMNS = ("verdict", "role", "kind", "name", "effect", "low", "high", "samples", "within", "share")
_FURTHER = ("relevance", "area", "first_epoch", "worst_samples", "text")


def findings_table(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    """Return one row per finding, by column; what is not known is None.

    Columns: `verdict`, `role`, `kind`, `name`, `effect` with `low` and `high`, `samples`, `within`, `share`,
    `relevance`, `area`, `first_epoch`, `worst_samples` (see `Finding`) and `text`.
    """
    rows = [_row(finding) for finding in findings]
    return {name: [row[name] for row in rows] for name in (*_COLUMNS, *_FURTHER)}


def findings_markdown(findings: Sequence[Finding]) -> str:
    """Return the same table in Markdown."""
    if not findings:
        return "No finding stands."
    names = (*_COLUMNS, *_FURTHER[:-1])
    lines = [[name.replace("_", " ") for name in names], ["---"] * len(names)]
    lines += [[_plain(_row(finding)[name]) for name in names] for finding in findings]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(finding: Finding) -> dict[str, Any]:
    named = {name: getattr(finding, name) for name in (*_COLUMNS, *_FURTHER) if hasattr(finding, name)}
    low, high = finding.interval
    row = {**named, "low": low, "high": high, "text": str(finding)}
    row["worst_samples"] = ", ".join(map(str, finding.worst_samples))
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}


def _plain(value: Any) -> str:
    """In one cell of a Markdown table."""
    text = "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
