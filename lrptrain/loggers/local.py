"""A folder as the sink: complete without any logging service, readable while the run continues.

    events.jsonl                                   one line per evaluation: epoch, step, scalars, findings
    findings.json                                  the findings that stand now
    samples/epoch_0003_step_000120.parquet         one row per sample
    pictures/epoch_0003_step_000120/<id>.png       relevance over the image
    highlights/epoch_0003_step_000120.html         relevance over the texts
    proofs/epoch_0003_step_000120/0_<kind>.png     samples as they are, and with the cue of two others
    class_maps/epoch_0003_step_000120.parquet      maps of the samples shown for many classes, one row each
    inputs/                                        what the samples are, once; see `lrptrain.loggers.inputs`

The numbers come first: the table and the line in `events.jsonl`, which is on the disk on return, and which all readers
go by (`findings.json` is for people and other programs). What takes room follows, maps of many classes, inputs and
pictures: if a full disk has no room for them, no number is lost. Every file but `events.jsonl` appears under its name
only when it is complete.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from lrptrain.extras import require
from lrptrain.files import append_json_line, file_name_of, folder_size_mb, write_atomically, write_json, write_text
from lrptrain.findings import Finding
from lrptrain.loggers.inputs import write_inputs
from lrptrain.loggers.metrics import COST, LoggedMetric
from lrptrain.loggers.proofs import highlights_page, proofs_page
from lrptrain.loggers.record import ClassMap, EpochRecord
from lrptrain.loggers.tables import read_columns
from lrptrain.loggers.timeline import (
    EVENTS,
    FORMAT,
    Moment,
    UnreadableRunError,
    read_timeline,
    refusal,
    stands,
    with_last_entries,
)
from lrptrain.terminal import give_warning

MAP = "map_"  # the prefix of columns of maps, such as `map_label`
SAMPLES = "samples"  # the folder of the tables, one for each evaluation
PROOFS = "proofs"  # the folder of samples with the cues of others
CLASS_MAPS = "class_maps"  # the folder of maps for many classes
RECORD_METRICS = (
    LoggedMetric(
        ("record_mb",),
        "Megabytes of the record",
        COST,
        unit="megabytes",
        explanation="Size of the run's folder before the evaluation.",
    ),
)


def write_record(
    folder: Path | str, record: EpochRecord, room_mb: float = float("inf"), marks: dict[str, Any] | None = None
) -> None:
    """Write one evaluation; one of the same epoch and step, by a run that was resumed, is replaced."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{evaluation_name(record.epoch, record.step)}.parquet"
    findings = [finding.to_dict() for finding in record.findings]
    event = {
        "epoch": record.epoch,
        "step": record.step,
        "format": FORMAT,
        "scalars": record.scalars,
        "findings": with_last_entries(findings),
        **({"power": dict(record.power)} if record.power else {}),
        "weights": dict(zip(("epoch", "step"), record.weights or (record.epoch, record.step), strict=True)),
        **(marks or {}),
    }
    table = folder / SAMPLES / name
    numbers: list[Callable[[], None]] = [
        lambda: _write_table(table, record, record.samples),
        lambda: _append_event(folder, event, table),
    ]
    # A reader that sees the line finds its table. But where a table of this name is, as of a timeline that was left, a
    # process that is killed must not leave the line of one evaluation beside the table of another.
    if _remove(table, folder / CLASS_MAPS / name):
        numbers.reverse()
    # In the order of worth: what comes first still finds room on a disk that is nearly full.
    parts: list[Callable[[], None]] = [
        *numbers,
        lambda: write_json(folder / "findings.json", findings),
        lambda: _write_table(folder / CLASS_MAPS / name, record, _class_columns(record.class_maps)),
        lambda: write_inputs(folder, record.inputs, room_mb),
        lambda: _write_pictures(folder, record),
        lambda: _write_highlights(folder, record),
        lambda: _write_proofs(folder, record),
    ]
    errors: list[OSError] = []
    for write in parts:
        try:
            write()
        except OSError as error:
            errors.append(error)
    # The parts are tried one by one: the first error is raised once all others had their turn.
    if errors:
        raise errors[0]


def _remove(*paths: Path) -> bool:
    """Remove files, and return whether any was there."""
    existing = [path for path in paths if path.exists()]
    for path in existing:
        path.unlink()
    return bool(existing)


def _append_event(folder: Path, event: dict[str, Any], table: Path) -> None:
    """Add the line of an evaluation; on a full disk its table, which is larger, makes room for it."""
    try:
        append_json_line(folder / EVENTS, event)
    except OSError:
        if not table.exists():
            raise
        table.unlink()
        append_json_line(folder / EVENTS, event)
        raise


class RecordWriter:
    """Writes the evaluations of a run within a budget: beyond it, numbers and maps continue, pictures do not.

    Args:
        max_mb: Once the folder has so many megabytes (10^6 bytes), inputs, pictures, highlights and the maps of many
            classes are no longer added; one warning says so.
    """

    def __init__(self, max_mb: float) -> None:
        if not max_mb >= 0:
            raise ValueError(f"max_record_mb must be a number of megabytes, 0 or more, not {max_mb}")
        self.max_mb = max_mb
        self._warned = False

    def write(self, folder: Path, record: EpochRecord, marks: dict[str, Any] | None = None) -> EpochRecord:
        """Write one evaluation; return it with one scalar more, `<prefix>/record_mb`, the size of the folder before."""
        size = folder_size_mb(folder)  # asked of the disk: a run that is resumed continues with what it has used
        record = replace(record, scalars={**record.scalars, f"{record.prefix}/record_mb": size})
        full = size >= self.max_mb
        if full and not self._warned:
            self._warned = True
            give_warning(
                f"The run's record {str(folder)!r} has {size:.0f} MB, and its budget is max_record_mb={self.max_mb:g}: "
                "scores, findings and maps are still written, pictures no longer",
            )
        within_budget = record
        if full:
            findings = [replace(finding, proof=None) for finding in record.findings]
            within_budget = replace(record, pictures=[], texts=[], inputs={}, class_maps=[], findings=findings)
        write_record(folder, within_budget, self.max_mb - size, marks)
        return record


def read_events(folder: Path | str) -> list[dict[str, Any]]:
    """The evaluations that stand, in order; see `lrptrain.loggers.timeline`.

    Lines that cannot be read are skipped. What was no finite number is None.

    Args:
        folder: Folder of the run.

    Returns:
        For each evaluation a dict with `epoch`, `step`, `scalars` (by key) and `findings` (see `Finding.to_dict`).

    Raises:
        FileNotFoundError: If there is no such folder.
        UnreadableRunError: If another version of lrptrain wrote the run in another format.
    """
    if refused := refusal(_existing(folder)):
        raise UnreadableRunError(refused)
    return read_timeline(Path(folder)).events


def read_samples(folder: Path | str, epoch: int | None = None) -> dict[str, list[Any]]:
    """The table of the samples, by column, with one row for each sample and evaluation.

    Args:
        folder: Folder that `write_record` wrote to.
        epoch: Only this one; all by default.

    Returns:
        The columns `epoch`, `step` and the record's own; a column that an epoch lacks is None there. Empty if nothing
        was written.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    return _read_tables(_existing(folder) / SAMPLES, epoch)


def read_class_maps(folder: Path | str, epoch: int | None = None) -> dict[str, list[Any]]:
    """The maps of the samples drawn for many classes, by column, with one row for each.

    Args:
        folder: Folder that `write_record` wrote to.
        epoch: Only this one; all by default.

    Returns:
        The columns `epoch`, `step`, `sample_id`, `class`, `probability` and `map_class`. Empty if nothing was written.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    return _read_tables(_existing(folder) / CLASS_MAPS, epoch)


def read_findings(folder: Path | str) -> list[Finding]:
    """The findings of the last evaluation that stands, in the order in which they are named.

    Args:
        folder: Folder of the run.

    Raises:
        FileNotFoundError: If there is no such folder: it would be taken for a run without findings.
        UnreadableRunError: If another version of lrptrain wrote the run in another format.
    """
    # Not from findings.json, which a full disk or a killed process may have left behind the evaluations.
    events = read_events(folder)
    return [*map(Finding.from_dict, events[-1]["findings"])] if events else []


def _existing(folder: Path | str) -> Path:
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"there is no folder of a run {str(folder)!r}")
    return Path(folder)


def evaluation_name(epoch: int, step: int) -> str:
    """Return the name of the files of one evaluation, such as `epoch_0003_step_000120`."""
    return f"epoch_{epoch:04d}_step_{step:06d}"


def picture_path(folder: Path, epoch: int, step: int, sample_id: int | str) -> Path:
    """Where the picture of a sample lies; ids that are no file names are quoted as in a URL."""
    return folder / "pictures" / evaluation_name(epoch, step) / f"{file_name_of(sample_id)}.png"


def _read_tables(folder: Path, epoch: int | None) -> dict[str, list[Any]]:
    arrow = require("pyarrow", "monitor")
    pattern = "epoch_*.parquet" if epoch is None else f"epoch_{epoch:04d}_step_*.parquet"
    by_moment = {_moment_of(table): table for table in map(read_columns, folder.glob(pattern))}
    # By number, not by name: epoch_10000 comes before epoch_9999 in the order of letters.
    tables = [by_moment[moment] for moment in sorted(by_moment) if stands(folder.parent, moment)]
    return arrow.concat_tables(tables, promote_options="permissive").to_pydict() if tables else {}


def _moment_of(table: Any) -> Moment:
    return table["epoch"][0].as_py(), table["step"][0].as_py()


def _write_proofs(folder: Path, record: EpochRecord) -> None:
    paths = set()
    for finding in record.findings:
        if (proof := finding.proof) is None:
            continue
        path = folder / proof.path
        paths.add(path)
        if proof.png:
            write_atomically(path, partial(Path.write_bytes, data=proof.png))
        else:
            write_text(path, proofs_page([finding]))
    # Of an evaluation of the same epoch and step that this one replaces.
    for path in (folder / PROOFS / evaluation_name(record.epoch, record.step)).glob("*.*"):
        if path not in paths:
            path.unlink()


def _class_columns(maps: list[ClassMap]) -> dict[str, list[Any]]:
    return {
        "sample_id": [each.sample_id for each in maps],
        "class": [each.class_name for each in maps],
        "probability": [each.probability for each in maps],
        f"{MAP}class": [each.relevance for each in maps],
    }


def _write_table(path: Path, record: EpochRecord, columns: dict[str, list[Any]]) -> None:
    rows = len(next(iter(columns.values()), ()))
    if not rows:
        return
    times = {"epoch": [record.epoch] * rows, "step": [record.step] * rows}
    compact = {name: _compact_maps(column) if name.startswith(MAP) else column for name, column in columns.items()}
    # `times` comes first for the order of the columns, and last for the values: a record may have columns of that name.
    table = require("pyarrow", "monitor").table({**times, **compact, **times})
    # Split into their bytes, of which the last are all alike, the numbers of a map take half the space.
    split = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in compact if name.startswith(MAP)}
    # Scores and labels repeat, and take less room as numbers of a dictionary; the values of maps hardly do.
    others = [name for name in table.column_names if name not in columns or not name.startswith(MAP)]
    options = {"compression": "zstd", "use_dictionary": others, "column_encoding": split or None}
    write_atomically(path, partial(require("pyarrow.parquet", "monitor").write_table, table, **options))


def _compact_maps(column: list[Any]) -> Any:
    """Maps in 32 bits, of which the last 13 are rounded away: 3 digits, of any magnitude."""
    arrow = require("pyarrow", "monitor")
    # Without a type, a column of None alone would be of another type than those of other evaluations.
    rounded = [None if values is None else _rounded(np.asarray(values, np.float32)) for values in column]
    return arrow.array(rounded, arrow.list_(arrow.float32()))


def _rounded(values: Float32[np.ndarray, " tokens"]) -> Float32[np.ndarray, " tokens"]:
    # Of the 23 bits of a float32's fraction 10 stay: half of the last one is added, and the 13 behind it are cleared.
    # For example 0.123456 becomes 0.1234741. The zeros compress well.
    bits = values.view(np.uint32) + np.uint32(0x1000)
    return np.where(np.isfinite(values), (bits & np.uint32(0xFFFFE000)).view(np.float32), values)


def _write_pictures(folder: Path, record: EpochRecord) -> None:
    if not record.pictures:
        return
    image = require("PIL.Image", "monitor")
    paths = {picture_path(folder, record.epoch, record.step, each.sample_id): each.image for each in record.pictures}
    for path, pixels in paths.items():
        write_atomically(path, partial(image.fromarray(np.ascontiguousarray(pixels)).save, format="PNG"))
    # All pictures of an evaluation lie in one folder, which one of the same epoch and step may have filled before.
    for path in next(iter(paths)).parent.glob("*.png"):
        if path not in paths:  # of the evaluation that this one replaces
            path.unlink()


def _write_highlights(folder: Path, record: EpochRecord) -> None:
    if record.texts:
        name = f"{evaluation_name(record.epoch, record.step)}.html"
        write_text(folder / "highlights" / name, highlights_page(record))
