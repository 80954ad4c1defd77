"""Files that are complete or absent, JSON that every language reads, and file names for any sample id."""

import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

_LONGEST_NAME = 150
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag
MOST_BYTES = 2**28
"""A record, an index or a config that is read at once has less: a line of `events.jsonl` has some 50 kB."""


def read_whole(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return what a regular file holds.

    Args:
        path: The file, or a link to one. A pipe would wait for its writer, and a device has no end.
        most: The most bytes that it may hold; it is read up to there.
    """
    # Looked at first, since to open a device may do something; then again what was opened, which may be another file.
    check_regular(path)
    # Without this flag (Windows has no pipes of that kind), to open a pipe is to wait for its writer.
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        about = os.fstat(file.fileno())
        check_regular(path, about)
        # What the file says of its size is enough to refuse it; it may grow while it is read, or say nothing (/proc).
        content = file.read(most + 1) if about.st_size <= most else b""
    if max(len(content), about.st_size) > most:
        raise OSError(f"{path} holds more than {most / 1e6:.0f} MB")
    return content


def check_regular(path: Path, about: os.stat_result | None = None) -> None:
    """Refuse what is no regular file, nor a link to one, before it is opened."""
    if not stat.S_ISREG((about or os.stat(path)).st_mode):
        raise OSError(f"{path} is no regular file")


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """Return the text of a regular file in UTF-8; see `read_whole`.

    Raises:
        OSError: See `read_whole`.
        ValueError: If it is no UTF-8.
    """
    return read_whole(path, most).decode()


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, and give it that name when it is complete and on the disk.

    Args:
        path: The file. Its folder is made if it does not exist.
        write: Takes the path of the file to fill. If it fails, as on a full disk, what it wrote is removed, and a file
            that was at `path` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so on the same disk: there, os.replace is atomic, and a reader sees the old file or the new.
    # Under a name that nobody knows: in the folder of somebody else, a link or a pipe could wait under a known one.
    part = path.with_name(f"{path.name[:_LONGEST_NAME]}.{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666))
    try:
        write(part)
        # A file system may keep the new name and lose the content when the machine goes down in between.
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, complete or not at all."""
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any, default: Callable[[Any], Any] | None = None) -> None:
    """Write a value as indented JSON, complete or not at all."""
    write_text(path, to_json(value, indent=1, default=default) + "\n")


def append_json_line(path: Path, value: Any) -> None:
    """Add a value as one line of JSON that is on the disk on return.

    An incomplete line before it, of a process that was killed, keeps a line of its own. If the line cannot be written
    in full, as on a full disk, none of it stays.
    """
    line = f"{to_json(value)}\n".encode()
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _NO_LINK | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o666), "ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        try:
            written = 0
            while written < len(line):  # a disk that becomes full takes a part first
                written += file.write(line[written:])
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def to_json(value: Any, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """Return the value as strict JSON.

    Args:
        value: Of dicts, lists, tuples, numbers, strings, numpy arrays and tensors. A number that is not finite, which
            JSON has no word for, becomes null.
        indent: Spaces per level; None for one line.
        default: Turns any other object into one of these, as in `json.dumps`.
    """
    return json.dumps(plain(value), indent=indent, allow_nan=False, default=default)


def plain(value: Any) -> Any:
    """Return a value with Python's numbers and lists for numpy's and torch's, and None for what is not finite."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # a numpy or torch array, or a number of theirs
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def file_name_of(sample_id: int | str) -> str:
    """Return a file name for a sample, without an ending: quoted as in a URL, and cut where it is long."""
    name = quote(str(sample_id), safe="")  # for example "a/b 1" becomes "a%2Fb%201"
    if len(name) > _LONGEST_NAME:
        # The hash tells long names apart that begin alike.
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return name


def is_file_name(name: str) -> bool:
    """Return whether a name that somebody else wrote names a file in a folder, and none elsewhere."""
    return name not in ("", ".", "..") and not any(character in name for character in "/\\\0")


def folder_size_mb(folder: Path) -> float:
    """Return the megabytes (10^6 bytes) of all files below a folder; 0 if there is no such folder."""
    paths = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
