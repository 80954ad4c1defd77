"""A folder as the sink: complete without any logging service, readable while the run goes on.

    events.jsonl                                   one line per evaluation: epoch, step, scalars, findings
    findings.json                                  the findings that stand now
    samples/epoch_0003_step_000120.parquet         one row per sample
    pictures/epoch_0003_step_000120/<id>.png       relevance over the image
    highlights/epoch_0003_step_000120.html         relevance over the texts
    class_maps/epoch_0003_step_000120.parquet      maps of the samples shown for many classes, one row each
    inputs/                                        what the samples are, once; see `lrptrain.loggers.inputs`

The line in `events.jsonl` is written last and to the disk: an evaluation that has one is complete. Every other file
appears under its name only when it is whole.
"""

import html
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from lrptrain.extras import require
from lrptrain.files import append_json_line, file_name_of, write_atomically, write_json, write_text
from lrptrain.findings import Finding
from lrptrain.loggers.inputs import write_inputs
from lrptrain.loggers.record import ClassMap, EpochRecord, Highlight

MAP = "map_"  # what the columns of maps start with
CLASS_MAPS = "class_maps"  # the folder


def write_record(folder: Path, record: EpochRecord, room_mb: float = float("inf")) -> None:
    """Write one evaluation; one of the same epoch and step, by a run that was resumed, is replaced.

    Args:
        folder: Made if it is not there.
        record: What to write.
        room_mb: Megabytes there are for inputs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    when = evaluation_name(record.epoch, record.step)
    write_inputs(folder, record.inputs, room_mb)
    if record.samples:
        _write_table(folder / "samples" / f"{when}.parquet", record, record.samples)
    if record.class_maps:
        _write_table(folder / CLASS_MAPS / f"{when}.parquet", record, _class_columns(record.class_maps))
    if record.pictures:
        _write_pictures(folder, record)
    if record.texts:
        _write_highlights(folder / "highlights" / f"{when}.html", record.texts, record.epoch)
    findings = [finding.to_dict() for finding in record.findings]
    write_json(folder / "findings.json", findings)
    event = {"epoch": record.epoch, "step": record.step, "scalars": record.scalars, "findings": findings}
    append_json_line(folder / "events.jsonl", event)


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The evaluations written so far, in order; of one written twice, the later line.

    A half-written line is skipped. What was no finite number is None.

    Returns:
        For each evaluation a dict with `epoch`, `step`, `scalars` (by key) and `findings` (see `Finding.to_dict`).
    """
    path = folder / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    events = {(event["epoch"], event["step"]): event for event in map(_parsed, lines) if event is not None}
    return [events[when] for when in sorted(events)]


def read_samples(folder: Path, epoch: int | None = None) -> dict[str, list[Any]]:
    """The table of the samples, by column, with one row for each sample and evaluation.

    Args:
        folder: As given to `write_record`.
        epoch: Only this one; all by default.

    Returns:
        The columns `epoch`, `step` and the record's own; a column that an epoch lacks is None there. Empty if nothing
        was written.
    """
    return _read_tables(folder / "samples", epoch)


def read_class_maps(folder: Path, epoch: int | None = None) -> dict[str, list[Any]]:
    """The maps of the samples drawn for many classes, by column, with one row for each.

    Args:
        folder: As given to `write_record`.
        epoch: Only this one; all by default.

    Returns:
        The columns `epoch`, `step`, `sample_id`, `class`, `probability` and `map_class`. Empty if nothing was written.
    """
    return _read_tables(folder / CLASS_MAPS, epoch)


def read_findings(folder: Path) -> list[Finding]:
    """The findings that stood at the last epoch written."""
    path = folder / "findings.json"
    return [Finding.from_dict(found) for found in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def evaluation_name(epoch: int, step: int) -> str:
    """What the files of one evaluation are called."""
    return f"epoch_{epoch:04d}_step_{step:06d}"


def picture_path(folder: Path, epoch: int, step: int, sample_id: int | str) -> Path:
    """Where the picture of a sample lies; ids that are no file names are quoted as in a URL."""
    return folder / "pictures" / evaluation_name(epoch, step) / f"{file_name_of(sample_id)}.png"


def _read_tables(folder: Path, epoch: int | None) -> dict[str, list[Any]]:
    arrow, parquet = require("pyarrow", "monitor"), require("pyarrow.parquet", "monitor")
    pattern = "epoch_*.parquet" if epoch is None else f"epoch_{epoch:04d}_step_*.parquet"
    tables = [parquet.read_table(path) for path in folder.glob(pattern)]
    tables.sort(key=lambda table: (table["epoch"][0].as_py(), table["step"][0].as_py()))
    return arrow.concat_tables(tables, promote_options="permissive").to_pydict() if tables else {}


def _class_columns(maps: list[ClassMap]) -> dict[str, list[Any]]:
    return {
        "sample_id": [one.sample_id for one in maps],
        "class": [one.class_name for one in maps],
        "probability": [one.probability for one in maps],
        f"{MAP}class": [one.relevance for one in maps],
    }


def _write_table(path: Path, record: EpochRecord, own: dict[str, list[Any]]) -> None:
    rows = len(next(iter(own.values())))
    columns = {"epoch": [record.epoch] * rows, "step": [record.step] * rows}
    kept = {name: _maps(column) if name.startswith(MAP) else column for name, column in own.items()}
    table = require("pyarrow", "monitor").table({**columns, **kept, **columns})
    # Split into their bytes, of which the last are all alike, the numbers of a map take half the space.
    split = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in kept if name.startswith(MAP)}
    whole = [name for name in table.column_names if name not in own or not name.startswith(MAP)]
    options = {"compression": "zstd", "use_dictionary": whole, "column_encoding": split or None}
    if rows:
        write_atomically(path, partial(require("pyarrow.parquet", "monitor").write_table, table, **options))


def _maps(column: list[Any]) -> Any:
    """Maps in 32 bits, of which the last 13 are rounded away: 3 digits, of any magnitude."""
    arrow = require("pyarrow", "monitor")
    kept = [None if values is None else _rounded(np.asarray(values, np.float32)) for values in column]
    return arrow.array(kept, arrow.list_(arrow.float32()))


def _rounded(values: Float32[np.ndarray, " tokens"]) -> Float32[np.ndarray, " tokens"]:
    bits = values.view(np.uint32) + np.uint32(0x1000)
    return np.where(np.isfinite(values), (bits & np.uint32(0xFFFFE000)).view(np.float32), values)


def _write_pictures(folder: Path, record: EpochRecord) -> None:
    image = require("PIL.Image", "monitor")
    paths = {picture_path(folder, record.epoch, record.step, one.sample_id): one.image for one in record.pictures}
    for path, pixels in paths.items():
        write_atomically(path, partial(image.fromarray(np.ascontiguousarray(pixels)).save, format="PNG"))
    for path in next(iter(paths)).parent.glob("*.png"):
        if path not in paths:
            path.unlink()


def _write_highlights(path: Path, texts: list[Highlight], epoch: int) -> None:
    blocks = "\n".join(f"<h2>{html.escape(text.caption)}</h2>\n{text.html}" for text in texts)
    style = "body{font-family:system-ui,sans-serif;max-width:60em;margin:2em auto}h2{font-size:1em;margin:1.5em 0 .3em}"
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Relevance, epoch {epoch}</title>'
        f"<style>{style}</style></head><body>\n<h1>Relevance, epoch {epoch}</h1>\n{blocks}\n</body></html>\n"
    )
    write_text(path, page)


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None
