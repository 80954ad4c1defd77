"""The evaluations of a run that stand: `events.jsonl`, whatever of it can be read.

Most lines are evaluations. A run that goes on from an earlier checkpoint adds a line such as

    {"continued_after": {"epoch": 2, "step": 60}}

and what was evaluated after that moment stands no longer: it belongs to a past that the model has left. Where nothing
had been evaluated at the checkpoint, the value is null.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lrptrain.findings import Scope
from lrptrain.findings.detector import get_detector

EVENTS = "events.jsonl"
_CONTINUED = "continued_after"

Moment = tuple[int, int]
"""Epoch and step of an evaluation."""


@dataclass(frozen=True)
class Timeline:
    """What stands, and what does not.

    Attributes:
        events: Evaluations in order of time, of one written twice the later line; see `parse_event`.
        dropped: The moments of evaluations that a continued run has left behind.
        unreadable: The number of complete lines that are neither evaluations nor ours.
    """

    events: list[dict[str, Any]]
    dropped: frozenset[Moment] = frozenset()
    unreadable: int = 0


def continued_after(moment: Moment | None) -> dict[str, Any]:
    """Return the line after which no evaluation later than a moment stands; None for none at all."""
    return {_CONTINUED: None if moment is None else {"epoch": moment[0], "step": moment[1]}}


def has_continuation(data: bytes) -> bool:
    """Return whether lines may hold one of `continued_after`; only a text of that name makes it say so wrongly."""
    return f'"{_CONTINUED}"'.encode() in data


def moment_of(event: dict[str, Any]) -> Moment:
    """Return the epoch and step of an evaluation."""
    return event["epoch"], event["step"]


def read_timeline(folder: Path) -> Timeline:
    """Read the evaluations of a run; a last line that is half written counts as not there."""
    path = folder / EVENTS
    return timeline_of(path.read_bytes().split(b"\n")) if path.exists() else Timeline([])


def read_dropped(folder: Path) -> frozenset[Moment]:
    """Return the moments of evaluations whose tables and pictures may still lie there, but stand no longer."""
    path = folder / EVENTS
    try:
        about = path.stat()
    except OSError:
        return frozenset()
    return _dropped(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _dropped(path: Path, changed: int, size: int) -> frozenset[Moment]:
    data = path.read_bytes()
    return timeline_of(data.split(b"\n")).dropped if has_continuation(data) else frozenset()


def timeline_of(lines: Iterable[bytes]) -> Timeline:
    """Return what stands after the lines were written one after the other."""
    standing: dict[Moment, dict[str, Any]] = {}
    dropped: set[Moment] = set()
    unreadable = 0
    for line in lines:
        if not line.strip():
            continue
        content = _parse(line)
        if _is_continuation(content):
            last = _moment(content[_CONTINUED])
            later = [moment for moment in standing if last is None or moment > last]
            dropped.update(later)
            for moment in later:
                del standing[moment]
            continue
        event = parse_event(content)
        if event is None:
            unreadable += 1
            continue
        # A run that is resumed may evaluate the same moment once more: the later line counts.
        standing[moment_of(event)] = event
        dropped.discard(moment_of(event))
    return Timeline([standing[moment] for moment in sorted(standing)], frozenset(dropped), unreadable)


def parse_event(content: Any) -> dict[str, Any] | None:
    """Return an evaluation without whatever is not of its form; None if it is none.

    Returns:
        `epoch`, `step`, `scalars` (numbers, or None for what was no finite number) and `findings` (see
        `Finding.to_dict`), each with its title and the kind of its scope, which records of older versions lack.
    """
    # A line of JSON may still be none of ours: without epoch and step there is no place for it in time.
    if not isinstance(content, dict) or _moment(content) is None:
        return None
    scalars = content.get("scalars")
    findings = content.get("findings")
    return {
        "epoch": content["epoch"],
        "step": content["step"],
        "scalars": {k: v for k, v in scalars.items() if _is_number(v)} if isinstance(scalars, dict) else {},
        "findings": [_completed(each) for each in findings if _is_finding(each)] if isinstance(findings, list) else [],
    }


def finite_or_none(value: Any) -> Any:
    """Return a value of JSON with None for nan and infinity, which Python reads and a browser does not."""
    if isinstance(value, dict):
        return {key: finite_or_none(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parse(line: bytes) -> Any:
    try:
        return finite_or_none(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _is_continuation(content: Any) -> bool:
    if not isinstance(content, dict) or _CONTINUED not in content:
        return False
    return content[_CONTINUED] is None or _moment(content[_CONTINUED]) is not None


def _moment(value: Any) -> Moment | None:
    if not isinstance(value, dict) or not all(isinstance(value.get(name), int) for name in ("epoch", "step")):
        return None
    return value["epoch"], value["step"]


def _completed(finding: dict[str, Any]) -> dict[str, Any]:
    if finding.get("title") and finding.get("scope_kind"):
        return finding
    # Older runs have the scope as one word, for example "overall" or the name of a class.
    scope = Scope.from_dict(finding).to_dict()
    return {**finding, **scope, "title": finding.get("title") or get_detector(finding["kind"]).title}


def _is_finding(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("kind", "scope", "state"))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
