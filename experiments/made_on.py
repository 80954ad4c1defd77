"""What the results of each experiment were made on, as a line of its README.

    .venv/bin/python -m experiments.made_on

A README has the line where it has the marks for it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.command import no_options
from experiments.records import CHANGED, KEY
from experiments.table import write_between

HERE = Path(__file__).resolve().parent
MARKS = ("<!-- made on -->", "<!-- end of made on -->")
BEFORE = {
    "class_specific": "3caa5b2",
    "default_method": "92065c8",
    "demo": "bd23914",
    "gallery": "2590a33",
    "perturbation": "3caa5b2",
    "segment_pets": "3caa5b2",
    "speed": "50795ab",
    "sweep": "112a2dd",
}
"""The commit that last changed those results of an experiment that do not say themselves what they were made on."""
CELLS = ("speed",)
"""Experiments that keep many measurements in a file, each made at a time of its own."""


def line(name: str) -> str:
    """Processor, versions and commits of an experiment's results, and how many of them do not say it."""
    records = list(_records(HERE / name / "results"))
    if name in CELLS:
        records = [cell for record in records for cell in _cells(record)]
    stamps = [stamp for record in records for stamp in _stamps(record)]
    if not stamps and name not in BEFORE:
        return "Nothing is measured yet."
    known = [stamp for stamp in stamps if stamp is not None]
    commits: dict[str, list[str]] = {}
    for stamp in known:
        commits.setdefault(_machine(stamp), []).append(stamp["commit"])
    parts = [f"{machine}, commits {', '.join(dict.fromkeys(found))}" for machine, found in commits.items()]
    text = f"Made on {'; '.join(parts)}." if parts else ""
    if any(stamp["commit"].endswith(CHANGED) for stamp in known):
        text += " A `+`: files that git tracks had been changed since."
    if not known or len(known) < len(stamps):
        whose = "the results" if not known else f"{len(stamps) - len(known)} of the {len(stamps)} results"
        text += (
            f" What {whose} were made on was not written down: a CPU, torch 2.15.0 by constraints.txt, last changed in "
            f"commit {BEFORE[name]}."
        )
    return text.strip()


def _machine(stamp: dict[str, Any]) -> str:
    """What a stamp says of the machine; older ones know neither instructions nor threads."""
    instructions = f" ({stamp['instructions']})" if "instructions" in stamp else ""
    threads = f", threads: {stamp['threads']}" if "threads" in stamp else ""
    return f"{stamp['cpu']}{instructions}{threads}, torch {stamp['torch']}"


def _records(folder: Path) -> Iterator[Any]:
    for path in sorted(folder.rglob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(folder.rglob("*.jsonl")):
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _cells(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The measurements of a file, each with its stamp: its own, or what the file and the cell say together."""
    if KEY in record:
        return [record]
    cells = record.get("cells", record).values()
    whole = {"cpu": record.get("cpu", record.get("device")), "torch": record.get("torch")}
    return [{KEY: whole | {"commit": _plus(cell["commit"])}} if "commit" in cell else cell for cell in cells]


def _plus(commit: str) -> str:
    """A commit with the mark of records.py for what was changed."""
    return commit.removesuffix("-dirty") + CHANGED * commit.endswith("-dirty")


def _stamps(record: dict[str, Any]) -> list[dict[str, Any] | None]:
    """Of a record, several where it was filled at several commits; None if it says nothing."""
    found = record.get(KEY)
    return found if isinstance(found, list) else [found]


def readmes() -> dict[str, Path]:
    """By experiment, those with a place for the line."""
    every = {path.parent.name: path for path in sorted(HERE.glob("*/README.md"))}
    return {name: path for name, path in every.items() if MARKS[0] in path.read_text(encoding="utf-8")}


def main() -> None:
    no_options(__doc__)
    for name, path in readmes().items():
        write_between(path, line(name), *MARKS)
        print(f"{name}: {line(name)}")


if __name__ == "__main__":
    main()
