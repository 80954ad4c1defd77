"""Scores of many classes as one table: a thousand classes are no thousand charts.

W&B takes 100,000 keys in a run and shows a chart for each, and stores that keep a file per key make as many files.
"""

import re
from dataclasses import replace
from typing import Any

from lrptrain.loggers.metrics import pattern
from lrptrain.loggers.record import EpochRecord

MOST_SCORES = 50
"""Scores of one kind, such as that of each class, that are logged as scalars; more of them are rows of a table."""
MOST_ROWS = 10_000
"""What W&B shows of a table at most."""
_PER_CLASS = "per_class"


def with_few_scores(record: EpochRecord) -> EpochRecord:
    """Return a record without the scalars that are rows of `scores_table`."""
    many = {key for family in _many(record).values() for key in family}
    return replace(record, scalars={key: value for key, value in record.scalars.items() if key not in many})


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
    table = scores_table(record)
    rows = [
        f"| {score} | {name.replace('|', chr(92) + '|')} | {value:.3g} |"
        for score, name, value in zip(*table.values(), strict=True)
    ]
    return "\n".join(["| score | of | value |", "| --- | --- | --- |", *rows]) if rows else ""


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
