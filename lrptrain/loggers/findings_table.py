"""The findings of an evaluation as a table, for loggers that show one."""

import math
from collections.abc import Sequence
from typing import Any

from lrptrain.findings import Finding

_COLUMNS = (
    "verdict", "role", "kind", "name", "effect", "low", "high", "samples", "within", "share", "relevance", "area",
    "first_epoch", "worst_samples",
)  # fmt: skip


def findings_table(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    """Return one row per finding, by column; what is not known is None.

    Columns: `verdict`, `role`, `kind`, `name`, `effect` with `low` and `high`, `samples`, `within`, `share`,
    `relevance`, `area`, `first_epoch`, `worst_samples` (see `Finding`) and `text`.
    """
    rows = [_row(finding) for finding in findings]
    return {name: [row[name] for row in rows] for name in (*_COLUMNS, "text")}


def findings_markdown(findings: Sequence[Finding]) -> str:
    """Return the same table in Markdown, without the texts."""
    if not findings:
        return "No finding."
    lines = [[name.replace("_", " ") for name in _COLUMNS], ["---"] * len(_COLUMNS)]
    lines += [[_plain(_row(finding)[name]) for name in _COLUMNS] for finding in findings]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(finding: Finding) -> dict[str, Any]:
    low, high = finding.interval
    worst = ", ".join(map(str, finding.worst_samples))
    derived = {"low": low, "high": high, "worst_samples": worst, "text": str(finding)}
    values = derived | {name: getattr(finding, name) for name in _COLUMNS if name not in derived}
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in values.items()}


def _plain(value: Any) -> str:
    """In one cell of a Markdown table."""
    text = "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
