"""Run folders, and what their evaluations say: whatever can be read, and a note about the rest."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lrptrain.files import MOST_BYTES, plain, read_whole
from lrptrain.loggers.local import PROOFS
from lrptrain.loggers.timeline import EVENTS, has_continuation, refusal, timeline_of

MARKS = ("events.jsonl", "run.json")
"""A folder with any of these is a monitored run."""
PNG = b"\x89PNG\r\n\x1a\n"
_DEEPEST = 8
"""Runs are looked for so many folders below the one that is shown: a choice, of how long that takes on a whole disk."""
_BRIEF = ("kind", "name", "role", "verdict", "effect", "interval", "is_fault")
SUMMARY = (*_BRIEF, "sentences")
"""What the list of runs says of a finding."""


def find_runs(root: Path) -> dict[str, Path]:
    """The run folders at or below a folder, by their path from it (its own name for itself), in order.

    Hidden folders and links are passed over, and nothing is looked for inside a monitored run.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{str(root)!r} is no folder: name one of a run, or one that holds runs")
    return {_name(path, root): path for path in sorted(_walk(root))}


def file_in(folder: Path, *parts: str) -> Path | None:
    """A file of a run; None if there is none, or if it is a link that leads out of the folder."""
    path = folder.joinpath(*parts)
    # Names come from requests and from files of a run: "../../etc/passwd" or a link to it must not be served.
    try:
        # As texts: the paths of pathlib take several times as long, and a long run has thousands of files.
        root = os.path.join(os.path.realpath(folder), "")
        is_inside = path.is_file() and os.path.realpath(path).startswith(root)
    except (OSError, ValueError):  # a name that no file can have
        return None
    return path if is_inside else None


def proof_picture(folder: Path, name: str) -> Path | None:
    """The picture of a finding's proof by its path in the run's folder; None if there is none, or it is no PNG."""
    parts = name.split("/")
    # As `lrptrain.loggers.local` writes them: no other file of the run is given out by this way.
    if len(parts) != 3 or parts[0] != PROOFS or not name.endswith(".png") or "\\" in name:
        return None
    path = file_in(folder, *parts)
    if path is None:
        return None
    with path.open("rb") as file:
        return path if file.read(len(PNG)) == PNG else None


def read_json_or_note(path: Path | None, notes: list[str]) -> Any:
    """What a JSON file holds, numbers that are not finite as None; None and a note if it cannot be read."""
    if path is None:
        return None
    try:
        return plain(json.loads(read_whole(path)))
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path.name} cannot be read and was passed over: {error}")
        return None


def read_settings(folder: Path, notes: list[str]) -> dict[str, Any]:
    """What was monitored, and how; empty if that is not known."""
    content = read_json_or_note(file_in(folder, "run.json"), notes)
    if content is not None and not isinstance(content, dict):
        notes.append("run.json does not say what was monitored, and was passed over")
    return content if isinstance(content, dict) else {}


def about_run(folder: Path) -> dict[str, Any]:
    """A run in short: `settings`, `last` evaluation, `notes`, and stamps that change when there is something new."""
    notes: list[str] = []
    events = file_in(folder, "events.jsonl")
    if events is None:
        notes.append("No evaluation was written yet.")
    elif refused := refusal(folder):
        notes.append(f"{refused}.")
    settings = read_settings(folder, notes)
    parent = settings.get("parent")
    if isinstance(parent, dict) and isinstance(parent.get("run"), str):
        notes.append(f"This run is a branch of {parent['run']}{_shared(parent.get('evaluation'))}.")
    return {
        "settings": settings,
        "size": events.stat().st_size if events else 0,
        "written": events.stat().st_mtime if events else None,
        "last": read_last(events) if events else None,
        "notes": notes,
    }


def changed(folder: Path) -> int:
    """When a run was last written to, in nanoseconds; 0 where that is not known."""
    paths = (file_in(folder, mark) for mark in MARKS)
    # A copy may keep an older time of writing: that of the file's entry is always new.
    return max((max(path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths if path is not None), default=0)


def read_last(path: Path) -> dict[str, Any] | None:
    """The last evaluation in an `events.jsonl`, its findings in short; None if there is none."""
    lines = _complete_lines(path)
    # Only a run that continued from an earlier checkpoint has lines that do not stand.
    events = [] if any(map(has_continuation, lines)) else timeline_of(lines[-1:]).events
    events = events or timeline_of(lines).events
    if not events:
        return None
    findings = [{key: finding.get(key) for key in SUMMARY} for finding in events[-1]["findings"]]
    return {**events[-1], "findings": findings}


def read_curves(folder: Path, names: Sequence[str]) -> dict[str, list[list[Any]]]:
    """Rows `[epoch, step, value]` of each of some scalars, such as `reliance`, over the evaluations that have it."""
    path = file_in(folder, EVENTS)
    events = [] if path is None else timeline_of(_complete_lines(path), with_findings=False).events
    curves: dict[str, list[list[Any]]] = {name: [] for name in names}
    for event in events:
        for name, rows in curves.items():
            value = _scalar(event["scalars"], name)
            if value is not None:
                rows.append([event["epoch"], event["step"], value])
    return curves


def _scalar(scalars: Mapping[str, float | None], ending: str) -> float | None:
    """A scalar by the end of its key: that of a monitor without a name goes before that of one with a name."""
    key = f"relevance/{ending}"
    if key not in scalars:
        key = next((each for each in scalars if each == ending or each.endswith(f"/{ending}")), "")
    return scalars.get(key)


def _complete_lines(path: Path) -> list[bytes]:
    """The lines of a file; the last one may be half written, and is left for the next time."""
    try:
        data = read_whole(path)
    except (OSError, ValueError):
        return []
    return data[: data.rfind(b"\n") + 1].splitlines()


def read_new_events(folder: Path, since: int = 0) -> dict[str, Any]:
    """The evaluations in the complete lines from a byte on.

    Returns:
        `events`: in order, with `epoch`, `step`, `scalars` (numbers or None) and `findings`, which are complete in the
        last one and brief in all others; `offset`, from where to ask next; `anew`, whether they start from the first
        byte; and `notes`.
    """
    path = file_in(folder, "events.jsonl")
    notes: list[str] = []
    if path is None:
        return {"events": [], "offset": 0, "anew": since > 0, "notes": notes}
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size > MOST_BYTES:
            notes.append(f"events.jsonl has {size / 1e6:.0f} MB, more than any record, and was passed over.")
            return {"events": [], "offset": 0, "anew": since > 0, "notes": notes}
        # A file that became shorter is another one, as of a run started again in the same folder.
        start = since if 0 <= since <= size else 0
        file.seek(start)
        data = file.read()
        # A run that continued from an earlier checkpoint takes back what the page has already: it starts anew.
        if start > 0 and has_continuation(data):
            start = 0
            file.seek(start)
            data = file.read()
    # The last line may be half written: it is left for the next time.
    complete = data[: data.rfind(b"\n") + 1]
    lines = [line for line in complete.split(b"\n") if line.strip()]
    timeline = timeline_of(lines)
    if timeline.unreadable and not refusal(folder):
        notes.append(
            f"{timeline.unreadable} of {len(lines)} lines of events.jsonl are no evaluations and were passed over."
        )
    events = timeline.events
    # Findings with all their evidence are most of the file, and the page draws only the last ones in full.
    for event in events[:-1]:
        event["findings"] = [{key: finding.get(key) for key in _BRIEF} for finding in event["findings"]]
    return {"events": events, "offset": start + len(complete), "anew": start != since or start == 0, "notes": notes}


def _shared(evaluation: Any) -> str:
    if not isinstance(evaluation, dict) or "epoch" not in evaluation:
        return ""
    return f": up to epoch {evaluation['epoch']}, its evaluations are those of that run"


def _walk(root: Path) -> Iterator[Path]:
    for parent, folders, _ in os.walk(root):
        path = Path(parent)
        if any(file_in(path, mark) for mark in MARKS):
            folders.clear()  # os.walk goes into what is left in this list
            yield path
        deep = len(path.relative_to(root).parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(name for name in folders if not name.startswith("."))


def _name(path: Path, root: Path) -> str:
    relative = path.relative_to(root)
    # `lrptrain dashboard .` in the folder of a run shows it by the name of that folder.
    return root.resolve().name or "run" if relative == Path(".") else relative.as_posix()
