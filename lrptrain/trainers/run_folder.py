"""The folder of a monitored run."""

from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from lrptrain.files import write_json


def run_folder(root: str | Path, name: str | None = None, suffix: str = "", resumed: str | None = None) -> Path:
    """Make `<root>/relevance/<name>`, which no other run has.

    Args:
        root: The trainer's `default_root_dir`.
        name: The name of the run, numbered if there is such a folder; None for the time.
        suffix: Text behind the name.
        resumed: The name of the folder of a run that goes on, which is used as it stands.
    """
    parent = Path(root) / "relevance"
    if resumed is not None:
        return parent / resumed
    base = parent / f"{name or datetime.now().strftime('%Y-%m-%d_%H-%M-%S')}{suffix}"
    parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
        # mkdir is atomic: of two runs that start at once, one gets the name and the other the next number.
        with suppress(FileExistsError):
            folder.mkdir()
            break
    return folder


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write `run.json`: what was monitored, and how."""
    write_json(folder / "run.json", settings, default=str)
