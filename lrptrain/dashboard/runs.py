"""Run folders, and what their evaluations say: whatever can be read, and a note about the rest."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lrptrain.files import MOST_BYTES, plain, read_whole
from lrptrain.loggers.timeline import has_continuation, timeline_of

MARKS = ("events.jsonl", "run.json")
"""A folder with any of these is a monitored run. One with an audit, or with an export of masks, is shown as one."""
AUDIT = "audit"
SEGMENTATION = "segmentation"
_DEEPEST = 8
_BRIEF = ("kind", "name", "role", "verdict", "effect", "interval", "is_fault")


def find_runs(root: Path) -> dict[str, Path]:
    """The run folders at or below a folder, by their path from it (its own name for itself), in order.

    Hidden folders and links are passed over, and nothing is looked for inside a monitored run. Beside an audit or an
    export, as `lrptrain audit` and `lrptrain segment` write them to the folder of a project, there may be other runs.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{str(root)!r} is no folder: name one of a run, or one that holds runs")
    return {_name(path, root): path for path in sorted(_walk(root))}


def find_exports(folder: Path) -> list[str]:
    """Exports of seeds and pseudo-masks in the folder of a run, as paths from it (`.` for itself).

    The export of the end comes first, then those of epochs, the last one first.
    """
    # The folder itself is one after `lrptrain segment`; below a monitored run it is segmentation/, as by the callback.
    base = "." if _is_export(folder, ".") else SEGMENTATION
    epochs = [path.name for path in (folder / base).glob("epoch_*") if path.name.removeprefix("epoch_").isdecimal()]
    epochs.sort(key=lambda name: -int(name.removeprefix("epoch_")))
    names = [base, *((Path(base) / name).as_posix() for name in epochs)]
    return [name for name in names if _is_export(folder, name)]


def file_in(folder: Path, *parts: str) -> Path | None:
    """A file of a run; None if there is none, or if it is a link that leads out of the folder."""
    path = folder.joinpath(*parts)
    # Names come from requests and from files of a run: "../../etc/passwd" or a link to it must not be served.
    try:
        is_inside = path.is_file() and _lies_in(path, folder)
    except (OSError, ValueError):  # a name that no file can have
        return None
    return path if is_inside else None


def _lies_in(path: Path, folder: Path) -> bool:
    """Return whether a path leads into a folder when all links on the way are followed."""
    # As texts: the paths of pathlib take several times as long, and a long run has thousands of files.
    root = os.path.join(os.path.realpath(folder), "")
    return os.path.realpath(path).startswith(root)


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
    """A run in short: `settings`, `notes`, and stamps that change when there is something new to read."""
    notes: list[str] = []
    events = file_in(folder, "events.jsonl")
    audit = file_in(folder, AUDIT, "results.json")
    exports = find_exports(folder)
    if events is None and audit is None and not exports:
        notes.append("No evaluation was written yet.")
    settings = read_settings(folder, notes)
    parent = settings.get("parent")
    if isinstance(parent, dict) and isinstance(parent.get("run"), str):
        notes.append(f"This run is a branch of {parent['run']}{_shared(parent.get('evaluation'))}.")
    return {
        "settings": settings,
        "size": events.stat().st_size if events else 0,
        "written": events.stat().st_mtime if events else None,
        "audit": audit.stat().st_mtime if audit else None,
        "masks": _masks_stamp(folder, exports),
        "notes": notes,
    }


def read_new_events(folder: Path, since: int = 0) -> dict[str, Any]:
    """The evaluations in the complete lines from a byte on.

    Args:
        folder: Folder of the run.
        since: Where to start; from the first byte if the file is shorter than that.

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
        # A run that went on from an earlier checkpoint takes back what the page has already: it starts anew.
        if start > 0 and has_continuation(data):
            start = 0
            file.seek(start)
            data = file.read()
    # The last line may be half written: it is left for the next time.
    complete = data[: data.rfind(b"\n") + 1]
    lines = [line for line in complete.split(b"\n") if line.strip()]
    timeline = timeline_of(lines)
    if timeline.unreadable:
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
        if any(file_in(path, mark) for mark in MARKS) or _is_export(path, "."):
            folders.clear()  # os.walk goes into what is left in this list
            yield path
        elif file_in(path, AUDIT, "results.json") or find_exports(path):
            folders[:] = [name for name in folders if name not in (AUDIT, SEGMENTATION)]
            yield path
        deep = len(path.relative_to(root).parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(name for name in folders if not name.startswith("."))


def _is_export(folder: Path, name: str) -> bool:
    """Whether there is an export that has a line, in an index or in a part of one."""
    if file_in(folder, name, "classes.json") is None and file_in(folder, name, "settings.json") is None:
        return False
    return any(file_in(folder, name, path.name) for path in (folder / name).glob("index*.jsonl"))


def _masks_stamp(folder: Path, exports: list[str]) -> float | None:
    """When the first export was done; 0 while it is written, None without one."""
    if not exports:
        return None
    # There is a merged index only once an export is complete.
    index = file_in(folder, exports[0], "index.jsonl")
    return index.stat().st_mtime if index is not None else 0


def _name(path: Path, root: Path) -> str:
    relative = path.relative_to(root)
    # `lrptrain dashboard .` in the folder of a run shows it by the name of that folder.
    return root.resolve().name or "run" if relative == Path(".") else relative.as_posix()
