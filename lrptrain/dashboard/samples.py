"""The table of a run's samples in one evaluation, and means over it."""

import re
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import numpy as np

from lrptrain.dashboard.runs import file_in
from lrptrain.extras import require
from lrptrain.loggers.inputs import input_path
from lrptrain.loggers.local import CLASS_MAPS, MAP

_NAME = re.compile(r"epoch_(\d+)_step_(\d+)")
_NOT_SHOWN = ("epoch", "step")
_NO_SCORES = ("sample_id", "label", "predicted", "group")


def evaluations(folder: Path) -> dict[str, Path]:
    """The tables of a run by name, `epoch_0003_step_000120`, in order."""
    found = (file_in(folder, "samples", path.name) for path in (folder / "samples").glob("epoch_*.parquet"))
    named = [path for path in found if path is not None and _NAME.fullmatch(path.stem)]
    return {path.stem: path for path in sorted(named, key=lambda path: when(path.stem))}


def when(name: str) -> tuple[int, int]:
    """Epoch and step of an evaluation."""
    found = _NAME.fullmatch(name)
    assert found is not None
    return int(found[1]), int(found[2])


def read_table(folder: Path, name: str | None = None) -> dict[str, Any]:
    """One row per sample of an evaluation, without the maps.

    Args:
        folder: Of the run.
        name: Of the evaluation; None for the last one that can be read.

    Returns:
        `evaluation`: its name, or None; `columns`: lists by name, of numbers, strings or None, where `sample_id` is a
        string; `pictured`: which samples' inputs are there; `targets`: whose maps are there, of all samples or, as
        `class <name>`, of those drawn; `names`: of all evaluations; and `notes`.
    """
    known, notes = evaluations(folder), list[str]()
    empty: dict[str, Any] = {
        "evaluation": None,
        "columns": {},
        "pictured": [],
        "targets": [],
        "names": list(known),
        "notes": notes,
    }
    for chosen in reversed(known) if name is None else [name] if name in known else []:
        try:
            columns, targets = _table(*stamped(known[chosen]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            notes.append(f"{chosen}.parquet cannot be read and was passed over: {error}")
            continue
        there = {path.name for path in (folder / "inputs").glob("*.json")}
        pictured = [input_path(folder, sample_id).name in there for sample_id in columns["sample_id"]]
        targets = [*targets, *_other_targets(folder, known[chosen].name)]
        return {**empty, "evaluation": chosen, "columns": columns, "pictured": pictured, "targets": targets}
    return empty


def read_scores(folder: Path, label: str | None = None, confidence: float = 0.95) -> dict[str, Any]:
    """Means over samples in every evaluation, with intervals.

    Args:
        folder: Of the run.
        label: Only of this class.
        confidence: Of the intervals, in (0, 1).

    Returns:
        `scores`: rows `[epoch, step, mean, low, high, samples]` by column, the accuracy as `correct`; and `notes`.
    """
    found: dict[str, list[list[float | None]]] = {}
    notes: list[str] = []
    for name, path in evaluations(folder).items():
        try:
            means = _means(*stamped(path), label, confidence)
        except (OSError, ValueError, TypeError, KeyError) as error:
            notes.append(f"{name}.parquet cannot be read and was passed over: {error}")
            continue
        for column, values in means.items():
            found.setdefault(column, []).append([*when(name), *values])
    return {"scores": found, "notes": notes}


def _other_targets(folder: Path, name: str) -> list[str]:
    """The classes that have maps of their own; none if that cannot be read."""
    path = file_in(folder, CLASS_MAPS, name)
    try:
        return _classes(*stamped(path)) if path is not None else []
    except (OSError, ValueError, TypeError, KeyError):
        return []  # what reads the maps says so


def arrow_errors(read: Any) -> Any:
    """Let a function raise pyarrow's errors as ValueErrors."""

    @wraps(read)
    def reading(*arguments: Any) -> Any:
        try:
            return read(*arguments)
        except require("pyarrow", "monitor").ArrowException as error:
            raise ValueError(" ".join(str(error).split())[:200]) from error

    return reading


def stamped(path: Path) -> tuple[Path, int, int]:
    """A path with what changes when the file does: the key of a cache."""
    about = path.stat()
    return path, about.st_mtime_ns, about.st_size


@lru_cache(maxsize=8)
@arrow_errors
def _table(path: Path, changed: int, size: int) -> tuple[dict[str, list[Any]], list[str]]:
    """The columns that can be shown, and the targets that have maps."""
    table, targets = _read(path)
    columns = {name: _listed(column) for name, column in table.to_pydict().items()}
    columns["sample_id"] = [str(sample_id) for sample_id in columns["sample_id"]]
    return columns, targets


@lru_cache(maxsize=8)
@arrow_errors
def _classes(path: Path, changed: int, size: int) -> list[str]:
    names = require("pyarrow.parquet", "monitor").read_table(path, columns=["class"])["class"].unique().to_pylist()
    return [f"class {name}" for name in sorted(map(str, names))]


def _read(path: Path) -> tuple[Any, list[str]]:
    """The same as pyarrow has it."""
    parquet, types = require("pyarrow.parquet", "monitor"), require("pyarrow.types", "monitor")
    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        if "sample_id" not in schema.names:
            raise ValueError("it has no column sample_id")
        plain = (types.is_integer, types.is_floating, types.is_string, types.is_large_string, types.is_boolean)
        shown = [one.name for one in schema if one.name not in _NOT_SHOWN and any(known(one.type) for known in plain)]
        targets = [name.removeprefix(MAP) for name in schema.names if name.startswith(MAP)]
        return file.read(columns=shown), targets


def _listed(column: list[Any]) -> list[Any]:
    """With None for what is no number, and six digits for what is one."""
    numbers = [value if not isinstance(value, float) else float(f"{value:.6g}") for value in column]
    return [value if not isinstance(value, float) or np.isfinite(value) else None for value in numbers]


@lru_cache(maxsize=20_000)
@arrow_errors
def _means(
    path: Path, changed: int, size: int, label: str | None, confidence: float
) -> dict[str, tuple[float | None, float | None, float | None, int]]:
    compute, types = require("pyarrow.compute", "monitor"), require("pyarrow.types", "monitor")
    table, _ = _read(path)
    named = {"label", "predicted"} <= set(table.column_names)
    if label is not None:
        table = table.filter(compute.equal(table["label"], label)) if named else table.slice(0, 0)
    found = {}
    for name in table.column_names:
        if name in _NO_SCORES or not (types.is_integer(table[name].type) or types.is_floating(table[name].type)):
            continue
        values = table[name].cast("float64").to_numpy()
        values = values[np.isfinite(values)]
        if len(values):
            found[name] = _mean(values, confidence)
    if named:
        known = table.filter(compute.not_equal(table["label"], "?"))
        if len(known):
            right = compute.sum(compute.equal(known["label"], known["predicted"])).as_py()
            found["correct"] = _share(right, len(known), confidence)
    return found


def _mean(values: np.ndarray, confidence: float) -> tuple[float | None, float | None, float | None, int]:
    """The mean with its t interval; without one below two values."""
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return mean, None, None, count
    t = require("scipy.special", "monitor").stdtrit(count - 1, 0.5 + confidence / 2)
    half = float(t * values.std(ddof=1) / np.sqrt(count))
    return mean, mean - half, mean + half, count


def _share(right: int, count: int, confidence: float) -> tuple[float | None, float | None, float | None, int]:
    """A share with Wilson's interval (1927), which has a width at 0 and 1, too."""
    share, z = right / count, float(require("scipy.special", "monitor").ndtri(0.5 + confidence / 2))
    middle = share + z**2 / (2 * count)
    half = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    low, high = ((middle + sign * half) / (1 + z**2 / count) for sign in (-1, 1))
    return share, float(low), float(high), count
