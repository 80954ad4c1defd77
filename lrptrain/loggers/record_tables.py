"""The tables of an evaluation, for loggers that show some: samples, findings, and the scores of many classes.

A thousand classes are no thousand charts: W&B takes 100,000 keys in a run and shows a chart for each, and stores that
keep a file per key make as many files.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lrptrain.findings import Finding
from lrptrain.loggers.local import MAP
from lrptrain.loggers.metrics import find_metric, pattern
from lrptrain.loggers.record import EpochRecord

MOST_SCORES = 50
"""Scores of one kind, such as that of each class, that are logged as scalars; more of them are rows of a table."""
MOST_ROWS = 10_000
"""What W&B shows of a table at most."""
_PER_CLASS = "per_class"
_COLUMNS = (
    "verdict", "role", "kind", "name", "effect", "low", "high", "samples", "within", "share", "relevance", "area",
    "first_epoch", "worst_samples",
)  # fmt: skip


def record_tables(record: EpochRecord) -> dict[str, dict[str, list[Any]]]:
    """Return the tables of a record that have something to say, by name and column.

    These are `samples`, `findings_table` (also without rows: then no finding stands) and `scores_table`.
    """
    tables = {"samples": samples_table(record), "scores_table": scores_table(record)}
    tables = {name: columns for name, columns in tables.items() if any(columns.values())}
    if record.samples or record.findings:
        tables["findings_table"] = findings_table(record.findings)
    return tables


def samples_table(record: EpochRecord) -> dict[str, list[Any]]:
    """Return one row per sample, by column, without its maps: the first 10,000.

    The columns are the record's own, and `correct` where label and prediction are known.
    """
    columns = {name: values[:MOST_ROWS] for name, values in record.samples.items() if not name.startswith(MAP)}
    if "label" in columns and "predicted" in columns:
        # "?" is the label of a sample that has none: whether it is read right is not known.
        pairs = zip(columns["label"], columns["predicted"], strict=True)
        columns["correct"] = [None if label == "?" else label == predicted for label, predicted in pairs]
    return columns


def rows_of(columns: dict[str, list[Any]]) -> list[list[Any]]:
    """Return the rows of a table that is given by column."""
    return [list(row) for row in zip(*columns.values(), strict=True)]


def _markdown(columns: Mapping[str, list[Any]]) -> str:
    """Return a table in Markdown; "" without any rows."""
    lines = [[*columns], ["---"] * len(columns), *(map(_cell, row) for row in zip(*columns.values(), strict=True))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if len(lines) > 2 else ""


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def findings_table(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    """Return one row per finding, by column; what is not known is None.

    Columns: `verdict`, `role`, `kind`, `name`, `effect` with `low` and `high`, `samples`, `within`, `share`,
    `relevance`, `area`, `first_epoch`, `worst_samples` (see `Finding`) and `text`.
    """
    rows = [_row(finding) for finding in findings]
    return {name: [row[name] for row in rows] for name in (*_COLUMNS, "text")}


def findings_markdown(findings: Sequence[Finding]) -> str:
    """Return the same table in Markdown, without the texts."""
    table = findings_table(findings)
    return _markdown({name.replace("_", " "): table[name] for name in _COLUMNS}) or "No finding."


def _row(finding: Finding) -> dict[str, Any]:
    low, high = finding.interval
    worst = ", ".join(map(str, finding.worst_samples))
    derived = {"low": low, "high": high, "worst_samples": worst, "text": str(finding)}
    values = derived | {name: getattr(finding, name) for name in _COLUMNS if name not in derived}
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in values.items()}


def with_few_scores(record: EpochRecord) -> EpochRecord:
    """Return a record without the scalars that are rows of `scores_table`."""
    many = {key for family in _many(record).values() for key in family}
    return replace(record, scalars={key: value for key, value in record.scalars.items() if key not in many})


def with_main_scalars(record: EpochRecord) -> EpochRecord:
    """Return a record with its main scalars, and with those that no metric declares."""
    own = {key: find_metric(record.metrics, key.removeprefix(f"{record.prefix}/")) for key in record.scalars}
    main = {key for key, metric in own.items() if metric is None or metric.is_main}
    return replace(record, scalars={key: value for key, value in record.scalars.items() if key in main})


def scores_table(record: EpochRecord) -> dict[str, list[Any]]:
    """Return the scores of many classes, groups or regions by column, a row for each.

    Columns: `score`, such as `label/energy_pointing_game_per_class`; `of`, the name of the class; and `value`. No rows
    where there are at most 50 classes, and 50 scores of each other kind; of more than 10,000 rows the first ones.
    """
    rows = _rows(record)[:MOST_ROWS]
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return {name: list(values) for name, values in zip(("score", "of", "value"), columns, strict=True)}


def scores_markdown(record: EpochRecord) -> str:
    """Return the same table in Markdown; "" without any rows."""
    return _markdown(scores_table(record))


def is_cut(record: EpochRecord) -> bool:
    """Return whether there are more scores than `scores_table` has rows for."""
    return len(_rows(record)) > MOST_ROWS


def _rows(record: EpochRecord) -> list[tuple[str, str, float]]:
    return [
        (family, key.removeprefix(f"{record.prefix}/{family}/"), record.scalars[key])
        for family, keys in _many(record).items()
        for key in keys
    ]


def _many(record: EpochRecord) -> dict[str, list[str]]:
    """Return those kinds of scores, with their keys, that have more than `MOST_SCORES`."""
    # Metrics declare them as a pattern, such as "label/energy_pointing_game_per_class/*".
    declared = [key for metric in record.metrics for key in metric.keys if key.endswith("/*")]
    patterns = {key: re.compile(f"{re.escape(record.prefix)}/{pattern(key)}") for key in declared}
    families = {
        key.removesuffix("/*"): [name for name in record.scalars if of_kind.fullmatch(name)]
        for key, of_kind in patterns.items()
    }
    return {family: keys for family, keys in families.items() if keys and _most(family, keys, record) > MOST_SCORES}


def _most(family: str, keys: list[str], record: EpochRecord) -> int:
    """Return how many scores of a kind there may be: as many as classes, of which an evaluation has some."""
    # How many classes are predicted differs from epoch to epoch: by that number, scores would be charts now and then.
    return max(len(keys), len(record.class_names) if family.endswith(_PER_CLASS) else 0)
