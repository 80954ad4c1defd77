"""An audit as a table, in plain sentences, and as files."""

import math
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from lrptrain.auditing.base import AuditTest, Column, registered_tests
from lrptrain.auditing.result import LEVELS, AuditResult, Verdict
from lrptrain.auditing.score import is_known, markdown_html, markdown_table, summarize, table_cell
from lrptrain.files import write_json, write_text


def verdict_table(result: AuditResult) -> str:
    """Return a row per method as aligned Markdown: the verdict and the numbers, the best first."""
    columns = _known_columns(result)
    rows = [["method", "faithful", *(column.head for _, column in columns)]]
    for verdict in sorted(result.verdicts, key=lambda verdict: _sort_key(result, verdict)):
        scores = [result.column_score(test, verdict.method, column) for test, column in columns]
        rows.append([verdict.method, verdict.faithful, *map(table_cell, scores)])
    return markdown_table(rows)


def audit_scalars(result: AuditResult) -> dict[str, float]:
    """Return what loggers show of every method: the columns that are logged, and the verdict as a number, if known."""
    values = {}
    for verdict in result.verdicts:
        for test, column in _known_columns(result):
            score = result.column_score(test, verdict.method, column)
            if column.logged_as and score is not None and is_known(score):
                values[f"audit/{verdict.method}/{column.logged_as}"] = score.value
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
        "↑ more is better, ↓ less is. cost: time of a map in forward and backward passes of the same batch."
        f"{_chances(result)}",
        verdict_table(result),
        "Verdicts:\n\n" + _bullets(str(verdict) for verdict in result.verdicts),
    ]
    if result.notes:
        parts.append("Note:\n\n" + _bullets(result.notes))
    if lines := _left_out(result):
        parts.append("Left out:\n\n" + _bullets(lines))
    return "\n\n".join(parts) + "\n"


def write_audit_report(result: AuditResult, folder: Path) -> None:
    """Save `audit.html`, with the plots of whatever was measured, and `results.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", result.to_dict())
    page = f'<!doctype html><meta charset="utf-8"><title>Audit</title>{markdown_html(markdown(result))}'
    write_text(folder / "audit.html", page + "".join(_plots(result)))


def _plots(result: AuditResult) -> list[str]:
    """Return the plots of all tests that have one and were run, as elements of HTML that hold their pixels."""
    with TemporaryDirectory() as folder:
        for test in registered_tests():
            test.plot(result, Path(folder))
        return [
            f'<img alt="{path.stem}" src="data:image/png;base64,{b64encode(path.read_bytes()).decode()}">'
            for path in sorted(Path(folder).glob("*.png"))
        ]


def _known_columns(result: AuditResult) -> list[tuple[AuditTest, Column]]:
    """Return the columns that were measured of any method."""
    return [
        (test, column)
        for test in registered_tests()
        for column in test.columns
        if any(is_known(result.column_score(test, method, column)) for method in result.methods)
    ]


def _chances(result: AuditResult) -> str:
    """Return a sentence for each column that has a level by chance, which hardly depends on the method."""
    sentences = ""
    for test, column in _known_columns(result):
        values = [result.values(test.name, method).get(column.chance) for method in result.methods]
        level = next((summarize(value) for value in values if value), None)
        if level is not None:
            sentences += f" Chance level of {column.title}: {level.value:.3f}."
    return sentences


def _sort_key(result: AuditResult, verdict: Verdict) -> tuple[float, ...]:
    """Sort by the verdict, "yes" first and what was not judged last, then by the columns that sort, highest first."""
    level = LEVELS[verdict.faithful]
    scores = [
        result.column_score(test, verdict.method, column)
        for test in registered_tests()
        for column in test.columns
        if column.sorts
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
