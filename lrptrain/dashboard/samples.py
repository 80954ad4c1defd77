"""The table of a run's samples in one evaluation, and means over it."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Float

from lrptrain.dashboard.runs import file_in
from lrptrain.extras import require
from lrptrain.loggers.inputs import input_path
from lrptrain.loggers.local import CLASS_MAPS, MAP
from lrptrain.loggers.tables import MOST_CELLS, arrow_errors, read_columns, read_schema
from lrptrain.loggers.timeline import stands

_NAME = re.compile(r"epoch_(\d+)_step_(\d+)")
_NOT_SHOWN = ("epoch", "step")
ACCURACY = "correct"
"""The name under which accuracies are returned; no table has such a column."""
CONFIDENCE = 0.95
"""The level of intervals where a run says none: that of `lrptrain.Judge`."""
_RESAMPLES = 2000
"""Samples of a bootstrap: a choice, of speed. The ends of an interval vary by less than a fiftieth of its width."""
_VALUES_AT_ONCE = 2_000_000
"""So many numbers are drawn at once, 16 MB: a choice, on which no result depends."""
_scoring = Lock()
_NO_SCORES = ("sample_id", "label", "predicted", "group")


def evaluations(folder: Path) -> dict[str, Path]:
    """The tables of a run's evaluations that stand by name, `epoch_0003_step_000120`, in order."""
    paths = (file_in(folder, "samples", path.name) for path in (folder / "samples").glob("epoch_*.parquet"))
    named = [path for path in paths if path is not None and _NAME.fullmatch(path.stem)]
    standing = [path for path in named if stands(folder, when(path.stem))]
    return {path.stem: path for path in sorted(standing, key=lambda path: when(path.stem))}


def when(name: str) -> tuple[int, int]:
    """Epoch and step of an evaluation."""
    match = _NAME.fullmatch(name)
    assert match is not None
    return int(match[1]), int(match[2])


def read_sample_table(folder: Path, name: str | None = None) -> dict[str, Any]:
    """One row per sample of an evaluation, without the maps.

    Returns:
        `evaluation`: its name, or None; `columns`: lists by name, of numbers, strings or None, where `sample_id` is a
        string; `pictured`: which samples' inputs are there; `targets`: whose maps are there, of all samples or, as
        `class <name>`, of those drawn; `names`: of all evaluations; and `notes`.
    """
    by_name = evaluations(folder)
    notes: list[str] = []
    empty: dict[str, Any] = {
        "evaluation": None,
        "columns": {},
        "pictured": [],
        "targets": [],
        "names": list(by_name),
        "notes": notes,
    }
    # The last table may be damaged, or being replaced: then the one before it is shown.
    for chosen in reversed(by_name) if name is None else [name] if name in by_name else []:
        try:
            columns, targets = _table(*stamped(by_name[chosen]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            notes.append(f"{chosen}.parquet cannot be read and was passed over: {error}")
            continue
        there = {path.name for path in (folder / "inputs").glob("*.json")}
        pictured = [input_path(folder, sample_id).name in there for sample_id in columns["sample_id"]]
        targets = [*targets, *_other_targets(folder, by_name[chosen].name)]
        return {**empty, "evaluation": chosen, "columns": columns, "pictured": pictured, "targets": targets}
    return empty


def read_scores(
    folder: Path,
    labels: Sequence[str | None] = (None,),
    confidence: float = CONFIDENCE,
    columns: Sequence[str] | None = None,
) -> dict[str | None, dict[str, Any]]:
    """Means over samples in every evaluation, with intervals.

    The interval of a mean is a bootstrap interval, that of the accuracy Wilson's.

    Returns:
        By label, `scores`: rows `[epoch, step, mean, low, high, samples]` by column, the accuracy as `correct`; and
        `notes`.
    """
    by_label: dict[str | None, dict[str, Any]] = {label: {"scores": {}, "notes": []} for label in labels}
    # Evaluations outside, classes inside: each table is read once for all classes.
    for name, path in evaluations(folder).items():
        for label, read in by_label.items():
            try:
                # The charts of a page ask at the same time: the second one waits for what the first one reads.
                with _scoring:
                    rows = _score_rows(path, label, confidence, columns)
            except (OSError, ValueError, TypeError, KeyError) as error:
                read["notes"].append(f"{name}.parquet cannot be read and was passed over: {error}")
                continue
            for column, row in rows.items():
                read["scores"].setdefault(column, []).append([*when(name), *row])
    return by_label


def _score_rows(
    path: Path, label: str | None, confidence: float, columns: Sequence[str] | None
) -> dict[str, tuple[float, float | None, float | None, int]]:
    """Mean, low and high end of its interval, and number of samples, of every score in one evaluation."""
    stamp = stamped(path)
    rows = {}
    for column, numbers in _values(*stamp, label).items():
        with_interval = columns is None or column in columns
        estimate = _estimate(*stamp, label, column, confidence) if with_interval else (numbers.mean(), None, None)
        rows[column] = (*estimate, len(numbers))
    return rows


def _other_targets(folder: Path, name: str) -> list[str]:
    """The classes that have maps of their own; none if that cannot be read."""
    path = file_in(folder, CLASS_MAPS, name)
    try:
        return _classes(*stamped(path)) if path is not None else []
    except (OSError, ValueError, TypeError, KeyError):
        return []  # what reads the maps says so


def stamped(path: Path) -> tuple[Path, int, int]:
    """A path with what changes when the file does: the key of a cache."""
    about = path.stat()
    return path, about.st_mtime_ns, about.st_size


@lru_cache(maxsize=8)
@arrow_errors
def _table(path: Path, changed: int, size: int) -> tuple[dict[str, list[Any]], list[str]]:
    """The columns that can be shown, and the targets that have maps."""
    table, targets = _read(path, changed, size)
    columns = {name: _listed(column) for name, column in table.to_pydict().items()}
    # The page looks samples up by text, as ids stand in addresses and file names.
    columns["sample_id"] = [str(sample_id) for sample_id in columns["sample_id"]]
    return columns, targets


@lru_cache(maxsize=8)
@arrow_errors
def _classes(path: Path, changed: int, size: int) -> list[str]:
    names = read_columns(path, ["class"])["class"].unique().to_pylist()
    return [f"class {name}" for name in sorted(map(str, names))]


@lru_cache(maxsize=2)  # the scores of one class after the other ask for the same table
def _read(path: Path, changed: int, size: int) -> tuple[Any, list[str]]:
    """Return the table as pyarrow has it, without columns of lists, and the targets that have maps."""
    types = require("pyarrow.types", "monitor")
    schema = read_schema(path)
    if "sample_id" not in schema.names:
        raise ValueError("it has no column sample_id")
    simple = (types.is_integer, types.is_floating, types.is_string, types.is_large_string, types.is_boolean)
    fields = [each for each in schema if each.name not in _NOT_SHOWN]
    names = [each.name for each in fields if any(is_type(each.type) for is_type in simple)]
    targets = [name.removeprefix(MAP) for name in schema.names if name.startswith(MAP)]
    # Parquet stores columns apart: the maps, by far the largest part of the file, are not read.
    return read_columns(path, names, MOST_CELLS), targets


def _listed(column: list[Any]) -> list[Any]:
    """With None for what is no number, and six digits for what is one."""
    # 0.12345678901234568 becomes 0.123457: less to send, and more digits than are shown.
    numbers = [value if not isinstance(value, float) else float(f"{value:.6g}") for value in column]
    return [value if not isinstance(value, float) or np.isfinite(value) else None for value in numbers]


@lru_cache(maxsize=256)
@arrow_errors
def _values(path: Path, changed: int, size: int, label: str | None) -> dict[str, Float[np.ndarray, " samples"]]:
    """The finite values of every score, of all samples or of a class; as `correct`, whether they are read right."""
    compute = require("pyarrow.compute", "monitor")
    types = require("pyarrow.types", "monitor")
    table, _ = _read(path, changed, size)
    has_classes = {"label", "predicted"} <= set(table.column_names)
    if label is not None:
        table = table.filter(compute.equal(table["label"], label)) if has_classes else table.slice(0, 0)
    columns = {}
    for name in table.column_names:
        if name in _NO_SCORES or not (types.is_integer(table[name].type) or types.is_floating(table[name].type)):
            continue
        # What an evaluation could not score is null or nan, and has no part in the mean.
        values = table[name].cast("float64").to_numpy()
        columns[name] = values[np.isfinite(values)]
    if has_classes:
        # "?" is the label of a sample that has none.
        labelled = table.filter(compute.not_equal(table["label"], "?"))
        columns[ACCURACY] = compute.equal(labelled["label"], labelled["predicted"]).to_numpy().astype(float)
    return {name: values for name, values in columns.items() if len(values)}


@lru_cache(maxsize=20_000)
def _estimate(
    path: Path, changed: int, size: int, label: str | None, column: str, confidence: float
) -> tuple[float, float | None, float | None]:
    """The mean of a score, and the low and high end of its interval; without one below two values."""
    values = _values(path, changed, size, label)[column]
    # A bootstrap of values that are all 1 has no width: a share needs an interval of its own kind.
    if column == ACCURACY:
        return wilson_interval(int(values.sum()), len(values), confidence)
    mean, low, high = bootstrap_interval(values, confidence)
    return (mean, None, None) if np.isnan(low) else (mean, low, high)


def confidence_or_usual(stated: Any) -> float:
    """Return a confidence in (0, 1); the usual one for anything else that a run or an address may say."""
    return stated if isinstance(stated, float) and 0 < stated < 1 else CONFIDENCE


def bootstrap_interval(values: Float[np.ndarray, " n"], confidence: float) -> tuple[float, float, float]:
    """Return the mean of finite values with its bias-corrected and accelerated bootstrap interval (Efron 1987).

    Returns:
        `(mean, low, high)`; of a single value low and high are nan, of values that are all the same the mean.
    """
    mean, spread = float(values.mean()), float(np.ptp(values))
    if len(values) < 2:
        return mean, np.nan, np.nan
    if spread <= 1e-9 * np.abs(values).max():
        return mean, mean, mean
    stats = require("scipy.stats", "monitor")
    # Of one scale: the third powers in the correction of tiny values would underflow.
    found = stats.bootstrap(
        ((values - mean) / spread,),
        np.mean,
        n_resamples=_RESAMPLES,
        confidence_level=confidence,
        batch=max(1, _VALUES_AT_ONCE // len(values)),
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return mean, mean + spread * float(found.low), mean + spread * float(found.high)


def wilson_interval(right: int, count: int, confidence: float) -> tuple[float, float, float]:
    """Return a share with the interval of Wilson (1927), which has a width at 0 and 1, too."""
    # e.g. 10 of 10 right at 95 % are 1.0 with the interval 0.72 to 1.0.
    found = require("scipy.stats", "monitor").binomtest(right, count).proportion_ci(confidence, "wilson")
    return right / count, float(found.low), float(found.high)
