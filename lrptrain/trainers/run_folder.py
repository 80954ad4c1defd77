"""The folder of a monitored run."""

from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from lrptrain.files import write_json


def run_folder(root: str | Path, name: str | None = None, suffix: str = "", continued: str | None = None) -> Path:
    """Make `<root>/relevance/<name>`, named by the time where no name is given.

    Args:
        root: As the trainer's `default_root_dir`.
        name: Of the run; numbered if there is such a folder, so that no run is mixed into another.
        suffix: Behind the name.
        continued: Name of the folder of a run that goes on, which is used as it stands.
    """
    parent = Path(root) / "relevance"
    if continued is not None:
        return parent / continued
    base = parent / f"{name or datetime.now().strftime('%Y-%m-%d_%H-%M-%S')}{suffix}"
    parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            break
    return folder


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write `run.json`: what was monitored, and how."""
    write_json(folder / "run.json", settings, default=str)
