"""Folders of runs."""

from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path


def run_parent(root: str | Path) -> Path:
    """Return the folder that holds the folders of all runs, `<root>/relevance`."""
    return Path(root) / "relevance"


def new_run_folder(root: str | Path, name: str | None = None, suffix: str = "") -> Path:
    """Make `<root>/relevance/<name>`, which no other run has."""
    parent = run_parent(root)
    base = parent / f"{name or datetime.now().strftime('%Y-%m-%d_%H-%M-%S')}{suffix}"
    parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
        # mkdir is atomic: of two runs that start at once, one gets the name and the other the next number.
        with suppress(FileExistsError):
            folder.mkdir()
            break
    return folder
