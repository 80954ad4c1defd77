"""The tables of an evaluation, for loggers that show tables."""

from typing import Any

from lrptrain.loggers.findings_table import findings_table
from lrptrain.loggers.local import MAP
from lrptrain.loggers.many_scores import MOST_ROWS, scores_table
from lrptrain.loggers.record import EpochRecord


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
