"""Which model does which method serve, and is its map right?

    .venv/bin/python -m experiments.sweep.run [timm|transformers|torchvision ...] [--only PATTERN] [--again PATTERN]

A line of JSON per model in `results/<library>.jsonl`; a run that was cut off goes on with the models that are missing.
"""

import argparse
import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.parallel import load
from experiments.records import stamped
from experiments.sweep.case import Case
from experiments.sweep.words import FEWER, METHODS

RESULTS = Path(__file__).resolve().parent / "results"
LIBRARIES = ("timm", "transformers", "torchvision")
SECONDS = 40
ASKED_LESS = ("token", "span", "choice")


def cases(library: str) -> Iterator[Case]:
    """All models of a library."""
    return import_module(f"experiments.sweep.{library}_models").cases()


def commit() -> str:
    """The commit that is measured."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(library: str, given: argparse.Namespace) -> None:
    """Do what is missing of a library."""
    from experiments.sweep.workers import examined

    path = given.results / f"{library}.jsonl"
    found = load(path)
    chosen = [case for case in cases(library) if re.search(given.only, case.key)]
    chosen = [case for case in chosen if not given.tasks or case.task in given.tasks]
    if given.first:
        chosen = list({case.family: case for case in reversed(chosen)}.values())[::-1]
    outdated = {key for key, row in found.items() if given.again and re.search(given.again, _line(row))}
    missing = [case for case in chosen if case.key not in found or case.key in outdated]
    at = commit()

    def work(case: Case) -> dict[str, Any]:
        facts = {"key": case.key, "library": library, "family": case.family, "name": case.name, "task": case.task}
        verdicts = examined(case, FEWER if case.task in ASKED_LESS else METHODS, given.seconds)
        return stamped({**facts, "commit": at, **verdicts})

    with ThreadPoolExecutor(given.jobs) as pool:
        for number, row in enumerate(pool.map(work, missing), 1):
            found[row["key"]] = row
            save(path, found)
            print(f"{number}/{len(missing)} {row['key']}: {summary(row)}", flush=True)


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row)


def save(path: Path, found: dict[str, Any]) -> None:
    """Write all rows, sorted by key."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(_line(found[key]) + "\n" for key in sorted(found)), encoding="utf-8")


def summary(row: dict[str, Any]) -> str:
    """A row in a few words."""
    if "unbuilt" in row:
        return f"unbuilt, {row['unbuilt'][:150]}"
    verdicts = row["methods"]
    served = sum(verdict == "ok" for verdict in verdicts.values())
    bad = {name: verdict[:150] for name, verdict in verdicts.items() if verdict != "ok"}
    bad |= {name: row[name] for name in ("model", "error") if name in row}
    return f"{served} of {len(verdicts)}, {row.get('seconds')} s " + "; ".join(f"{k}: {v}" for k, v in bad.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # No default of several: Python 3.11 holds it against the choices as one.
    parser.add_argument("libraries", nargs="*", choices=[[], *LIBRARIES], default=[])
    parser.add_argument("--only", default="", help="a pattern of library/family/name")
    parser.add_argument("--again", default="", help="also models whose line of JSON matches this pattern")
    parser.add_argument("--tasks", nargs="*", default=[], help="only these tasks")
    parser.add_argument("--results", type=Path, default=RESULTS, help="another folder for the results")
    parser.add_argument("--first", action="store_true", help="one model per family")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="processor time per model")
    given = parser.parse_args()
    for library in given.libraries or LIBRARIES:
        run(library, given)


if __name__ == "__main__":
    main()
