"""Files that are whole or not there, lines that are on the disk, and names for any sample."""

import hashlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

_LONGEST_NAME = 150


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path` and give it that name when it is done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    write(part)
    os.replace(part, path)


def append_line(path: Path, line: str) -> None:
    """Add a line that is on the disk on return; a half-written one before it stays by itself."""
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def to_json(value: Any, indent: int | None = None) -> str:
    """As JSON, with null for numbers that it does not know."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def name_of(sample_id: int | str) -> str:
    """A file name for a sample, without an ending: quoted as in a URL, and cut where it is long."""
    name = quote(str(sample_id), safe="")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return name


def size_in_mb(folder: Path) -> float:
    """Megabytes (10^6 bytes) of all files below a folder; 0 if there is none."""
    files = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def _finite(value: Any) -> Any:
    """With None for numbers that JSON does not know, and Python's numbers for numpy's and torch's."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
