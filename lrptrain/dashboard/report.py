"""A run as one HTML file that needs no server and no network."""

import base64
from contextlib import suppress
from pathlib import Path
from typing import Any

from lrptrain.dashboard.maps import read_cards, read_histories
from lrptrain.dashboard.notes import read_notes
from lrptrain.dashboard.page import page
from lrptrain.dashboard.runs import about_run, file_in, find_runs, proof_picture, read_new_events
from lrptrain.dashboard.samples import confidence_or_usual, read_sample_table, read_scores
from lrptrain.files import read_whole, to_json, write_text
from lrptrain.loggers.inputs import input_path
from lrptrain.loggers.timeline import UnreadableRunError, refusal

MOST_SAMPLES = 200
"""So many samples have maps and images in the file: a choice, of how large it is to send."""
MOST_PICTURE_BYTES = 2**24
"""A larger picture is left out: a choice, far above those of inputs, whose longer side is `LARGEST` at most."""
MOST_SCORED_CLASSES = 20
"""So many classes have scores of their own, which take some milliseconds each: a choice, of how long a report takes."""


def write_html_report(folder: Path, output: Path) -> list[str]:
    """Write a run, or all runs below a folder, as one HTML file that opens without a network."""
    runs = find_runs(folder)
    if not runs:
        raise FileNotFoundError(f"no run in {str(folder)!r}: name a folder with events.jsonl, or one above it")
    refusals = [*map(refusal, runs.values())]
    if all(refusals):
        raise UnreadableRunError(refusals[0])
    html = page(to_json({name: _everything(path) for name, path in runs.items()}))
    write_text(output, html)
    return list(runs)


def _everything(folder: Path) -> dict[str, Any]:
    """Return what the page would ask a server for, by the same names; static/source.js reads it."""
    about = about_run(folder)
    events = read_new_events(folder)
    table = read_sample_table(folder)
    columns = table["columns"]
    settings = about["settings"]
    confidence = confidence_or_usual(settings.get("confidence"))
    labels = sorted({label for label in columns.get("label", []) if isinstance(label, str)})
    scores = read_scores(folder, [None, *labels[:MOST_SCORED_CLASSES]], confidence)
    ids = _chosen(table)
    cards = read_cards(folder, table["evaluation"] or "", ids)
    return {
        "about": about,
        "events": events,
        "scores": {label or "": each for label, each in scores.items()},
        "table": table,
        "cards": cards,
        "history": read_histories(folder, ids),
        "images": {sample_id: _pictures(folder, sample_id) for sample_id in ids},
        "proofs": {name: _embedded(proof_picture(folder, name), "png") for name in _proof_names(events)},
        "notes": read_notes(folder),
    }


def _proof_names(events: dict[str, Any]) -> list[str]:
    """The pictures of the proofs of the last evaluation, which the page shows in full."""
    findings = events["events"][-1]["findings"] if events["events"] else []
    proofs = [finding["proof"] for finding in findings if isinstance(finding.get("proof"), dict)]
    return [proof["path"] for proof in proofs if str(proof.get("path")).endswith(".png")]


def _chosen(table: dict[str, Any]) -> list[str]:
    """Which samples have their maps in the report: those with a picture first."""
    ids = table["columns"].get("sample_id", [])
    # Maps without their inputs are hard to read: the samples whose inputs were kept come first.
    pictured = [sample_id for sample_id, has_picture in zip(ids, table["pictured"], strict=True) if has_picture]
    return [*pictured, *(sample_id for sample_id in ids if sample_id not in set(pictured))][:MOST_SAMPLES]


def _pictures(folder: Path, sample_id: str) -> dict[str, str]:
    names = {
        kind: input_path(folder, sample_id, end).name for kind, end in (("image", ".webp"), ("mask", ".mask.webp"))
    }
    paths = {kind: file_in(folder, "inputs", name) for kind, name in names.items()}
    return {kind: _embedded(path, "webp") for kind, path in paths.items() if path is not None}


def _embedded(path: Path | None, kind: str) -> str:
    content = b""
    if path is not None:
        with suppress(OSError):  # a picture that is gone, or larger than any of a run
            content = read_whole(path, MOST_PICTURE_BYTES)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
