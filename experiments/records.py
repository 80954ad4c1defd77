"""How results are written: every record says on which processor, with which torch and at which commit it was made.

Numbers repeat to the last digit on one kind of processor, with one version of torch and one number of threads; on
another kind sums are added up in another order, training goes another way, and means differ within their intervals.
"""

import json
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lrptrain.findings import Finding

Record = dict[str, Any]
KEY = "made_on"
CHANGED = "+"
"""Ends a commit if files that git tracks were changed since."""
ROOT = Path(__file__).resolve().parents[1]


def made_on() -> dict[str, Any]:
    """Return processor, its widest instructions that torch uses, threads, version of torch, and commit."""
    return {
        "cpu": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": _started_at(),
    }


@cache
def _started_at() -> str:
    """The commit as it was when this process first asked: files may change while it runs."""
    return _commit()


def stamped(record: Record) -> Record:
    """Return the record with what it was made on; a record that says it already keeps that."""
    return {KEY: made_on()} | record


def save(path: Path, record: Record, indent: int | None = None) -> None:
    """Write one record to a file of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stamped(record), indent=indent) + "\n", encoding="utf-8")


def append(path: Path, record: Record) -> None:
    """Add one record to a file of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(stamped(record)) + "\n")


def _processor() -> str:
    """The processor's name, as the system tells it."""
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        names = [line for line in listed.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        if names:
            return names[0].partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The checked out commit, marked if files that git tracks were changed since; "unknown" without git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        # Results are written while an experiment runs: they are no change of what runs.
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":!experiments/*/results/*", ":!*.md")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + CHANGED * bool(changed)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def named(findings: Iterable[Finding]) -> list[Record]:
    """The faults among findings, and what else the model relies on."""
    return [
        {
            "cue": each.name,
            "kind": each.kind,
            "effect": each.effect,
            "low": each.interval[0],
            "is_fault": each.is_fault,
        }
        for each in findings
        if each.is_fault or each.needs_review
    ]
