"""What people write on the page, in the run's folder: notes on samples, and views of them by their names."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from lrptrain.dashboard.runs import file_in, read_json_or_note
from lrptrain.files import write_json

FILE = "notes.json"
KINDS = ("samples", "views")
LONGEST = 2000
"""So many characters has a note, or the address of a view, at most."""
WAIT = 5.0
"""So many seconds a note waits for one of another page on the same folder, which takes milliseconds."""
_writing = Lock()


def read_notes(folder: Path) -> dict[str, Any]:
    """Return `samples`, the notes by sample id; `views`, addresses by name; and `notes` on what cannot be read."""
    notes: list[str] = []
    content = read_json_or_note(file_in(folder, FILE), notes) or {}
    found = {kind: _texts(content, kind) for kind in KINDS}
    if not notes and {kind: texts for kind, texts in found.items() if kind in content} != content:
        notes.append(f"{FILE} holds something else than notes and views, which is not shown")
    return {**found, "notes": notes}


def write_note(folder: Path, kind: Any, name: Any, text: Any) -> None:
    """Keep a text under a name, in place of an earlier one; an empty one takes it away.

    Raises:
        ValueError: If there is no such kind, a text is none or too long, or what people wrote before cannot be read.
        OSError: If it cannot be written.
    """
    is_text = isinstance(name, str) and isinstance(text, str)
    if kind not in KINDS or not is_text or not name or max(len(name), len(text)) > LONGEST:
        raise ValueError(f"a note is one of {', '.join(KINDS)}, has a name, and at most {LONGEST} characters")
    with _writing, _alone_in(folder):  # two windows may write at the same time, and two pages
        found = read_notes(folder)
        if found["notes"]:  # it would be lost
            raise ValueError(found["notes"][0])
        found[kind][name] = text
        write_json(folder / FILE, {kind: {k: v for k, v in found[kind].items() if v} for kind in KINDS})


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process writes notes in a folder; on Windows there is no such lock."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + WAIT
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise OSError(f"another program holds {folder}") from error
                time.sleep(0.01)
        yield
    finally:
        os.close(opened)  # which gives the lock back


def _texts(content: Any, kind: str) -> dict[str, str]:
    values = content.get(kind) if isinstance(content, dict) else None
    return {k: v for k, v in values.items() if isinstance(v, str)} if isinstance(values, dict) else {}
