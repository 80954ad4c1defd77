"""An audit as a table, in plain sentences, as files and as plots."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lrptrain.auditing.base import registered_tests
from lrptrain.auditing.result import LEVELS, AuditResult, Verdict
from lrptrain.auditing.score import markdown_table, table_cell
from lrptrain.files import write_json, write_text


def verdict_table(result: AuditResult) -> str:
    """Return a row per method as aligned Markdown: the verdict and the numbers behind it, the best first."""
    columns = [
        (test, test.column)
        for test in registered_tests()
        if test.column is not None and any(result.values(test.name, method) for method in result.methods)
    ]
    rows = [["method", "faithful", *(column.head for _, column in columns)]]
    for verdict in sorted(result.verdicts, key=lambda verdict: _sort_key(result, verdict)):
        scores = [result.column_score(test, verdict.method) for test, _ in columns]
        rows.append([verdict.method, verdict.faithful, *(table_cell(score, 0) for score in scores)])
    return markdown_table(rows)


def audit_scalars(result: AuditResult) -> dict[str, float]:
    """Return what loggers show of every method: the columns that are logged, and the verdict as a number, if known."""
    values = {}
    for verdict in result.verdicts:
        for test in registered_tests():
            score = result.column_score(test, verdict.method)
            if test.column is not None and test.column.logged_as and score is not None and not math.isnan(score.value):
                values[f"audit/{verdict.method}/{test.column.logged_as}"] = score.value
        # "not judged" is nan, which loggers would draw as a gap or refuse.
        level = LEVELS[verdict.faithful]
        if not math.isnan(level):
            values[f"audit/{verdict.method}/verdict"] = level
    return values


def markdown(result: AuditResult) -> str:
    """Return everything in words: what was audited, the table, the verdicts, and what was left out."""
    about = result.about
    accuracy = "" if math.isnan(about["accuracy"]) else f", {about['accuracy']:.0%} of them classified correctly"
    parts = [
        f"{about['samples']} samples{accuracy}; the predicted class is explained. Mean [95 % interval over samples]; "
        "↑ more is better, ↓ less is.",
        verdict_table(result),
        "Verdicts:\n\n" + _bullets(str(verdict) for verdict in result.verdicts),
    ]
    if result.notes:
        parts.append("Note:\n\n" + _bullets(result.notes))
    if lines := _left_out(result):
        parts.append("Left out:\n\n" + _bullets(lines))
    return "\n\n".join(parts) + "\n"


def to_dict(result: AuditResult) -> dict[str, Any]:
    """Return what `results.json` holds: the result, and how the page shows the numbers of each test."""
    tests = {
        test.name: {"title": test.title, "number": test.column.description, "range": test.column.range}
        for test in registered_tests()
        if test.column is not None
    }
    return {**result.to_dict(), "tests": tests}


def write_audit_report(result: AuditResult, folder: Path) -> None:
    """Save `audit.md`, `results.json`, and the plots of whatever was measured.

    Raises:
        ImportError: Without matplotlib.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "audit.md", markdown(result))
    write_json(folder / "results.json", to_dict(result))
    plot_tests(result, folder)


def plot_tests(result: AuditResult, folder: Path) -> None:
    """Save the plots of all tests that have one and were run, as PNG files.

    Raises:
        ImportError: Without matplotlib.
    """
    for test in registered_tests():
        test.plot(result, folder)


def _sort_key(result: AuditResult, verdict: Verdict) -> tuple[float, ...]:
    """Sort by the verdict, "yes" first and what was not judged last, then by the columns that sort, highest first."""
    level = LEVELS[verdict.faithful]
    scores = [
        result.column_score(test, verdict.method)
        for test in registered_tests()
        if test.column is not None and test.column.sorts
    ]
    return (math.inf if math.isnan(level) else -level, *(-score.value if score else math.inf for score in scores))


def _left_out(result: AuditResult) -> list[str]:
    """Return the units without values and the reason, those of one reason together."""
    units_by_reason: dict[str, list[str]] = {}
    for unit in result.units:
        if unit.problem:
            units_by_reason.setdefault(unit.problem, []).append(unit.title)
    return [f"{', '.join(units)}: {reason}" for reason, units in units_by_reason.items()]


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)
