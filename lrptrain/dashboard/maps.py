"""Maps of single samples, small enough for a page, beside what the samples are."""

import base64
from collections.abc import Sequence
from functools import lru_cache
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from lrptrain.dashboard.runs import file_in, read_json_or_note
from lrptrain.dashboard.samples import evaluations, stamped, when
from lrptrain.extras import require
from lrptrain.loggers.inputs import input_path
from lrptrain.loggers.local import CLASS_MAPS, MAP
from lrptrain.loggers.tables import arrow_errors, read_columns, read_schema
from lrptrain.render import join_words

_LEVELS = 127
"""The levels of either sign in a signed byte."""
_TINY = 1e-300
"""The quotient of `_LEVELS` and less overflows: a map of only such values counts as all zero."""
MOST_EPOCHS = 40
"""The most evaluations of which `read_histories` returns the maps."""
# What an evaluation has of maps: the row of each sample id in the table; the table's column of each target ("label",
# "predicted"); and by sample id and target ("class cat") the maps of single classes.
_Rows = dict[str, int]
_Columns = dict[str, Any]
_Others = dict[str, dict[str, Any]]
_Tables = tuple[_Rows, _Columns, _Others]
_NOTHING: _Tables = ({}, {}, {})


def read_cards(folder: Path, name: str, ids: Sequence[str]) -> dict[str, Any]:
    """Samples with their maps in one evaluation.

    Returns:
        `cards`: by id, of all that the table has, `maps` by target (see `packed`), `grid`, `image` and `mask`: whether
        there is one, `tokens`, `annotation`, `scored` (which tokens are) and `words` of a text; and `notes`.
    """
    notes: list[str] = []
    path = evaluations(folder).get(name)
    tables = _tables(folder, path, notes) if path is not None else _NOTHING
    cards = {}
    for sample_id in ids:
        if sample_id in tables[0]:
            by_target = _maps_of(sample_id, tables)
            about = about_sample(folder, sample_id, notes, min(_lengths(by_target), default=0))
            cards[sample_id] = {**about, "maps": _packed_maps(by_target, about)}
    return {"cards": cards, "notes": notes}


def read_histories(folder: Path, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """How the maps of samples changed: at most 40 evaluations, the first and the last among them.

    Returns:
        By id, `history`: in order, with `epoch`, `step`, and `maps` by target (see `packed`); and `notes`.
    """
    notes: list[str] = []
    chosen = _spread(list(evaluations(folder).items()))
    evaluated = [(when(name), _tables(folder, path, notes)) for name, path in chosen]
    return {sample_id: _history(folder, sample_id, evaluated, notes) for sample_id in ids}


def _history(
    folder: Path, sample_id: str, evaluated: list[tuple[tuple[int, int], _Tables]], notes: list[str]
) -> dict[str, Any]:
    """Return what `read_histories` returns of one sample, with the notes on the tables that were read."""
    sample_notes: list[str] = []
    record = _record(folder, sample_id, sample_notes)  # the same in every evaluation
    history = [
        {"epoch": epoch, "step": step, "maps": _packed_maps(_maps_of(sample_id, tables), record)}
        for (epoch, step), tables in evaluated
        if sample_id in tables[0]
    ]
    return {"history": history, "notes": [*notes, *sample_notes]}


def packed(values: Any, scored: Sequence[bool] | None = None) -> dict[str, Any] | None:
    """A map in a byte per value.

    Args:
        values: Relevance of each token. What is not finite counts as 0.
        scored: Which tokens set the scale; all by default. Others, such as `[CLS]`, may have far more relevance, beside
            which every word would round to 0.

    Returns:
        `length`; `peak`, the largest magnitude of a scored token; `values`, base64 of signed 127ths of it, larger ones
        cut off; and `unscored`, the share of the relevance, in 0..1 by magnitude, of the tokens that are not scored.
        None for what is no map.
    """
    if not isinstance(values, list | np.ndarray) or len(values) == 0:
        return None
    # For example relevance [9.0, 0.5, -0.25] of the tokens [CLS], good, day, of which the last two are scored: the peak
    # is 0.5, and the levels are [127, 127, -64], of which the page shows the first in grey.
    numbers: Float[np.ndarray, " tokens"] = np.nan_to_num(np.asarray(values, dtype=float), posinf=0.0, neginf=0.0)
    size = np.abs(numbers)
    in_scale = np.ones(len(numbers), dtype=bool) if scored is None else np.asarray(scored, dtype=bool)
    peak = float(size[in_scale].max(initial=0.0))
    levels = np.rint((numbers * (_LEVELS / peak)).clip(-_LEVELS, _LEVELS)) if peak > _TINY else np.zeros_like(numbers)
    share = float(f"{size[~in_scale].sum() / (size.sum() or 1.0):.6g}")
    if size[in_scale].any():  # nearly all of the relevance must not be rounded to all of it
        share = min(share, 1 - 1e-6)
    return {
        "length": len(numbers),
        "peak": float(f"{peak:.4g}"),
        "values": base64.b64encode(levels.astype(np.int8).tobytes()).decode(),
        "unscored": share,
    }


def _tables(folder: Path, path: Path, notes: list[str]) -> _Tables:
    """Read the maps of an evaluation, and add a note about what cannot be read."""
    rows: _Rows = {}
    columns: _Columns = {}
    others: _Others = {}
    try:
        rows, columns = map_columns(*stamped(path))
        also = file_in(folder, CLASS_MAPS, path.name)
        others = _class_maps(*stamped(also)) if also is not None else {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        # The table of samples comes first: without its rows, that is the file which could not be read.
        which = path.name if not rows else f"{CLASS_MAPS}/{path.name}"
        notes.append(f"{which} cannot be read and was passed over: {error}")
    return rows, columns, others


def _maps_of(sample_id: str, tables: _Tables) -> dict[str, Any]:
    """Return the maps of a sample by target, for example `{"label": [...], "predicted": [...], "class cat": [...]}`."""
    rows, columns, others = tables
    return {target: _row(column, rows[sample_id]) for target, column in columns.items()} | others.get(sample_id, {})


def _lengths(by_target: dict[str, Any]) -> set[int]:
    return {len(values) for values in by_target.values() if isinstance(values, list | np.ndarray)} - {0}


def _packed_maps(by_target: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """Return maps as the page draws them; see `packed`."""
    lengths = _lengths(by_target)
    # Maps of one sample have one length, that of its tokens; others are scaled over all of their values.
    scored = _text_of(about, next(iter(lengths)))["scored"] if len(lengths) == 1 else None
    maps = {target: packed(values, scored) for target, values in by_target.items()}
    return {target: each for target, each in maps.items() if each is not None}


# The arguments `changed` and `size`, of `stamped`, are not read: a file that was replaced is another key of the cache,
# which has room for one whole history and a few tables besides.
@lru_cache(maxsize=MOST_EPOCHS + 8)
@arrow_errors
def _class_maps(path: Path, changed: int, size: int) -> _Others:
    """Return the maps of single classes, by sample id and target."""
    types = require("pyarrow.types", "monitor")
    table = read_columns(path, ["sample_id", "class", f"{MAP}class"])
    kind = table.schema.field(f"{MAP}class").type
    if not types.is_list(kind) or not types.is_floating(kind.value_type):
        raise ValueError("its maps are no lists of numbers")
    maps: _Others = {}
    # One row per sample and class, for example (17, "cat", [0.1, ...]). The maps stay in Arrow; see `map_columns`.
    for row, (sample_id, name) in enumerate(
        zip(*(table[key].to_pylist() for key in ("sample_id", "class")), strict=True)
    ):
        maps.setdefault(str(sample_id), {})[f"class {name}"] = _row(table[f"{MAP}class"], row)
    return maps


@lru_cache(maxsize=MOST_EPOCHS + 8)
@arrow_errors
def map_columns(path: Path, changed: int, size: int) -> tuple[_Rows, _Columns]:
    """Return the row of each sample id, and the column of maps of each target."""
    types = require("pyarrow.types", "monitor")
    schema = read_schema(path)
    maps = [column for column in schema if column.name.startswith(MAP) and types.is_list(column.type)]
    names = [column.name for column in maps if types.is_floating(column.type.value_type)]
    table = read_columns(path, ["sample_id", *names])
    # The columns stay in Arrow: as Python's lists, the maps of 10 000 samples would take gigabytes in the cache.
    rows = {str(sample_id): row for row, sample_id in enumerate(table["sample_id"].to_pylist())}
    return rows, {name.removeprefix(MAP): table[name] for name in names}


def _row(column: Any, row: int) -> np.ndarray | None:
    """A map of the column; None where there is none."""
    values = column[row].values
    return values.to_numpy(zero_copy_only=False) if values is not None else None


def about_sample(folder: Path, sample_id: str, notes: list[str], length: int) -> dict[str, Any]:
    """What the sample is; without a record of it, a square grid where its map, of this length, can be one."""
    record = _record(folder, sample_id, notes)
    pictures = [input_path(folder, sample_id, ending).name for ending in (".webp", ".mask.webp")]
    image, mask = (file_in(folder, "inputs", name) is not None for name in pictures)
    text = _text_of(record, length)
    return {
        "grid": _grid(record.get("grid"), length, text=bool(record.get("tokens"))),
        "image": image,
        "mask": mask,
        **text,
        "words": _words(*(tuple(text[name] or ()) for name in ("tokens", "scored", "annotation"))),
    }


def _record(folder: Path, sample_id: str, notes: list[str]) -> dict[str, Any]:
    """What the run has written of a sample; empty if that cannot be read."""
    content = read_json_or_note(file_in(folder, "inputs", input_path(folder, sample_id).name), notes)
    return content if isinstance(content, dict) else {}


def _text_of(record: dict[str, Any], length: int) -> dict[str, list[Any] | None]:
    """Return `tokens`, `annotation` and `scored` of a text whose maps have this length, or None."""
    # Any program may have written the record: what does not fit the length of the map is left out.
    annotation = record["annotation"] if _is_list(record.get("annotation"), length, int) else None
    scored = record["scored"] if _is_list(record.get("scored"), length, bool) else None
    tokens = record["tokens"] if scored is not None and _is_list(record.get("tokens"), length, str) else None
    return {"tokens": tokens, "annotation": annotation, "scored": scored}


# A text is the same in every evaluation.
@lru_cache(maxsize=512)
def _words(tokens: tuple[str | None, ...], scored: tuple[bool, ...], annotation: tuple[int, ...]) -> list[Any]:
    """What is shown of a text: its words, as `lrptrain.render` joins them, each with the places of its tokens."""
    evidence = [value == 1 for value in annotation] or [False] * len(tokens)
    return [word._asdict() for word in join_words(tokens, scored, evidence)]


def _is_list(values: Any, length: int, kind: type) -> bool:
    return isinstance(values, list) and len(values) == length and all(x is None or isinstance(x, kind) for x in values)


def _grid(grid: Any, length: int, text: bool) -> list[int] | None:
    if _is_list(grid, 2, int) and None not in grid and grid[0] * grid[1] == length and length:
        return grid
    # 196 values are a grid of 14 x 14, as of a ViT on 224 pixels in patches of 16; those of a text are none.
    side = isqrt(length)
    return [side, side] if length and not text and side * side == length else None


def _spread(items: list[Any]) -> list[Any]:
    """Choose at most 40 items, evenly spread, with both ends."""
    if len(items) <= MOST_EPOCHS:
        return items
    places = np.rint(np.linspace(0, len(items) - 1, MOST_EPOCHS)).astype(int)
    return [items[place] for place in places]
