"""What the results of each experiment were made on, as a line of its README.

    .venv/bin/python -m experiments.made_on

A README has the line where it has the marks for it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.records import KEY
from experiments.table import write_between

HERE = Path(__file__).resolve().parent
MARKS = ("<!-- made on -->", "<!-- end of made on -->")
BEFORE = {
    "attention_debate": "3caa5b2",
    "blocks": "c7b911e",
    "class_specific": "3caa5b2",
    "default_method": "92065c8",
    "detection": "c861c72",
    "movies": "3caa5b2",
    "perturbation": "3caa5b2",
    "segment_digits": "3caa5b2",
    "segment_pets": "3caa5b2",
    "segmentation": "3caa5b2",
    "sweep": "112a2dd",
    "trainers": "335c987",
    "tweets": "3caa5b2",
}
"""The commit that last changed those results of an experiment that do not say themselves what they were made on."""


def line(name: str) -> str:
    """Processor, versions and commits of an experiment's results, and how many of them do not say it."""
    stamps = [stamp for record in _records(HERE / name / "results") for stamp in _stamps(record)]
    known = [stamp for stamp in stamps if stamp is not None]
    commits: dict[str, list[str]] = {}
    for stamp in known:
        machine = f"{stamp['cpu']} ({stamp['instructions']}), threads: {stamp['threads']}, torch {stamp['torch']}"
        commits.setdefault(machine, []).append(stamp["commit"])
    parts = [f"{machine}, commits {', '.join(dict.fromkeys(found))}" for machine, found in commits.items()]
    text = f"Made on {'; '.join(parts)}." if parts else ""
    if any(stamp["commit"].endswith("+") for stamp in known):
        text += " A `+`: files that git tracks had been changed since."
    if silent := len(stamps) - len(known):
        whose = "the results" if not known else f"{silent} of the {len(stamps)} results"
        text += (
            f" What {whose} were made on was not written down: a CPU, torch 2.15.0 by constraints.txt, last changed in "
            f"commit {BEFORE[name]}."
        )
    return text.strip()


def _records(folder: Path) -> Iterator[Any]:
    for path in sorted(folder.rglob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(folder.rglob("*.jsonl")):
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _stamps(record: dict[str, Any]) -> list[dict[str, Any] | None]:
    """Of a record, several where it was filled at several commits; None if it says nothing."""
    found = record.get(KEY)
    return found if isinstance(found, list) else [found]


def readmes() -> dict[str, Path]:
    """By experiment, those with a place for the line."""
    every = {path.parent.name: path for path in sorted(HERE.glob("*/README.md"))}
    return {name: path for name, path in every.items() if MARKS[0] in path.read_text(encoding="utf-8")}


def main() -> None:
    for name, path in readmes().items():
        write_between(path, line(name), *MARKS)
        print(f"{name}: {line(name)}")


if __name__ == "__main__":
    main()
