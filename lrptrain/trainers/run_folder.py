"""The folder of a monitored run."""

import json
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any


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
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(settings, indent=1, default=str), encoding="utf-8")
