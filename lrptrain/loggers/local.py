"""A folder as the sink: complete without any logging service, readable while the run goes on.

    events.jsonl                                   one line per evaluation: epoch, step, scalars, findings
    findings.json                                  the findings that stand now
    samples/epoch_0003_step_000120.parquet         one row per sample
    pictures/epoch_0003_step_000120/<id>.png       relevance over the image
    highlights/epoch_0003_step_000120.html         relevance over the texts

The line in `events.jsonl` is written last and to the disk: an evaluation that has one is complete. Every other file
appears under its name only when it is whole.
"""

import hashlib
import html
import json
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from lrptrain.extras import require
from lrptrain.findings import Finding
from lrptrain.loggers.record import EpochRecord, Highlight, Picture

_LONGEST_NAME = 150


def write_record(folder: Path, record: EpochRecord) -> None:
    """Write one evaluation; one of the same epoch and step, by a run that was resumed, is replaced.

    Args:
        folder: Made if it is not there.
        record: What to write.
    """
    folder.mkdir(parents=True, exist_ok=True)
    when = evaluation_name(record.epoch, record.step)
    if record.samples:
        _write_samples(folder / "samples" / f"{when}.parquet", record)
    if record.pictures:
        _write_pictures(folder / "pictures" / when, record.pictures)
    if record.texts:
        _write_highlights(folder / "highlights" / f"{when}.html", record.texts, record.epoch)
    findings = [finding.to_dict() for finding in record.findings]
    _whole(folder / "findings.json", lambda path: path.write_text(_json(findings, indent=1), encoding="utf-8"))
    event = {"epoch": record.epoch, "step": record.step, "scalars": record.scalars, "findings": findings}
    _append_line(folder / "events.jsonl", _json(event))


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
    arrow, parquet = require("pyarrow", "monitor"), require("pyarrow.parquet", "monitor")
    pattern = "epoch_*.parquet" if epoch is None else f"epoch_{epoch:04d}_step_*.parquet"
    tables = [parquet.read_table(path) for path in (folder / "samples").glob(pattern)]
    tables.sort(key=lambda table: (table["epoch"][0].as_py(), table["step"][0].as_py()))
    return arrow.concat_tables(tables, promote_options="permissive").to_pydict() if tables else {}


def read_findings(folder: Path) -> list[Finding]:
    """The findings that stood at the last epoch written."""
    path = folder / "findings.json"
    return [Finding.from_dict(found) for found in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def evaluation_name(epoch: int, step: int) -> str:
    """What the files of one evaluation are called."""
    return f"epoch_{epoch:04d}_step_{step:06d}"


def picture_path(folder: Path, epoch: int, step: int, sample_id: int | str) -> Path:
    """Where the picture of a sample lies; ids that are no file names are quoted as in a URL."""
    return folder / "pictures" / evaluation_name(epoch, step) / _file_name(sample_id)


def _write_samples(path: Path, record: EpochRecord) -> None:
    rows = len(next(iter(record.samples.values())))
    columns = {"epoch": [record.epoch] * rows, "step": [record.step] * rows}
    table = require("pyarrow", "monitor").table({**columns, **record.samples, **columns})
    if rows:
        _whole(path, partial(require("pyarrow.parquet", "monitor").write_table, table))


def _write_pictures(folder: Path, pictures: list[Picture]) -> None:
    image = require("PIL.Image", "monitor")
    named = {_file_name(picture.sample_id): np.ascontiguousarray(picture.image) for picture in pictures}
    for name, pixels in named.items():
        _whole(folder / name, partial(image.fromarray(pixels).save, format="PNG"))
    for path in folder.glob("*.png"):
        if path.name not in named:
            path.unlink()


def _write_highlights(path: Path, texts: list[Highlight], epoch: int) -> None:
    blocks = "\n".join(f"<h2>{html.escape(text.caption)}</h2>\n{text.html}" for text in texts)
    style = "body{font-family:system-ui,sans-serif;max-width:60em;margin:2em auto}h2{font-size:1em;margin:1.5em 0 .3em}"
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Relevance, epoch {epoch}</title>'
        f"<style>{style}</style></head><body>\n<h1>Relevance, epoch {epoch}</h1>\n{blocks}\n</body></html>\n"
    )
    _whole(path, lambda part: part.write_text(page, encoding="utf-8"))


def _whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path` and give it that name when it is done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    write(part)
    os.replace(part, path)


def _append_line(path: Path, line: str) -> None:
    """Add a line that is on the disk on return; a half-written one before it stays by itself."""
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    """With None for numbers that JSON does not know, and Python's numbers for numpy's and torch's."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def _file_name(sample_id: int | str) -> str:
    name = quote(str(sample_id), safe="")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{name}.png"
