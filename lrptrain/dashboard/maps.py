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
from lrptrain.dashboard.tables import arrow_errors, read_columns, read_schema
from lrptrain.extras import require
from lrptrain.loggers.inputs import input_path
from lrptrain.loggers.local import CLASS_MAPS, MAP
from lrptrain.render import join_words, scored_tokens

MOST_EPOCHS = 40
"""The most evaluations of which `read_history` returns the maps."""
# What an evaluation has of maps: the row of each sample id in the table; the table's column of each target ("label",
# "predicted"); and by sample id and target ("class cat") the maps of single classes.
_Rows = dict[str, int]
_Columns = dict[str, Any]
_Others = dict[str, dict[str, Any]]
_Tables = tuple[_Rows, _Columns, _Others]
_NOTHING: _Tables = ({}, {}, {})


def read_cards(folder: Path, name: str, ids: Sequence[str]) -> dict[str, Any]:
    """Samples with their maps in one evaluation.

    Args:
        folder: Folder of the run.
        name: Name of the evaluation.
        ids: Ids of the samples.

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
            cards[sample_id] = _card(folder, sample_id, notes, tables)
    return {"cards": cards, "notes": notes}


def read_history(folder: Path, sample_id: str) -> dict[str, Any]:
    """How a sample's maps changed: at most 40 evaluations, the first and the last among them.

    Returns:
        `history`: in order, with `epoch`, `step`, and `maps` by target (see `packed`); and `notes`.
    """
    notes: list[str] = []
    history = []
    for name, path in _spread(list(evaluations(folder).items())):
        tables = _tables(folder, path, notes)
        if sample_id in tables[0]:
            epoch, step = when(name)
            card = _card(folder, sample_id, notes, tables)
            history.append({"epoch": epoch, "step": step, "maps": card["maps"]})
    return {"history": history, "notes": notes}


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
    # The quotient 127 / peak overflows near the smallest floats: a map of only such values counts as all zero.
    levels = np.rint((numbers * (127 / peak)).clip(-127, 127)) if peak > 1e-300 else np.zeros_like(numbers)
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


def _card(folder: Path, sample_id: str, notes: list[str], tables: _Tables) -> dict[str, Any]:
    """What a sample is, and its maps by target, those of single classes as `class <name>`; see `packed`."""
    rows, columns, others = tables
    by_target = {target: _row(column, rows[sample_id]) for target, column in columns.items()}
    # For example {"label": [...], "predicted": [...], "class cat": [...]}.
    by_target |= others.get(sample_id, {})
    lengths = {len(values) for values in by_target.values() if isinstance(values, list | np.ndarray)} - {0}
    about = about_sample(folder, sample_id, notes, min(lengths, default=0))
    # Maps of one sample have one length, that of its tokens; others are scaled over all of their values.
    scored = about["scored"] if len(lengths) == 1 else None
    maps = {target: packed(values, scored) for target, values in by_target.items()}
    return {**about, "maps": {target: each for target, each in maps.items() if each is not None}}


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
    # One row per sample and class, for example (17, "cat", [0.1, ...]).
    for sample_id, name, values in zip(*table.to_pydict().values(), strict=True):
        maps.setdefault(str(sample_id), {})[f"class {name}"] = values
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
    name = input_path(folder, sample_id).stem
    content = read_json_or_note(file_in(folder, "inputs", f"{name}.json"), notes)
    # Any program may have written the file: what does not fit the length of the map is left out.
    about = content if isinstance(content, dict) else {}
    image, mask = (file_in(folder, "inputs", f"{name}{end}") is not None for end in (".webp", ".mask.webp"))
    tokens = about["tokens"] if _is_list(about.get("tokens"), length, str) else None
    annotation = about["annotation"] if _is_list(about.get("annotation"), length, int) else None
    scored = about["scored"] if _is_list(about.get("scored"), length, bool) else None
    if tokens is not None and scored is None:  # a record of an earlier version
        scored = scored_tokens(tokens, annotation).tolist()
    return {
        "grid": _grid(about.get("grid"), length, text=bool(about.get("tokens"))),
        "image": image,
        "mask": mask,
        "tokens": tokens,
        "annotation": annotation,
        "scored": scored,
        "words": _words(tuple(tokens or ()), tuple(scored or ()), tuple(annotation or ())),
    }


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
