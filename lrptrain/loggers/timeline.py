"""The evaluations of a run that stand: `events.jsonl`, whatever of it can be read.

A line is an evaluation, and has the number of its format. The first one of a run that continues from an earlier
checkpoint says so in the same line,

    {"epoch": 3, "step": 80, "format": 2, ..., "id": "5a2f09c1d7e3", "continued_after": {"epoch": 2, "step": 60}}

and what was evaluated after that moment before stands no longer: it belongs to a past that the model has left. Where
nothing had been evaluated at the checkpoint, the value is null. One line, so that a kill never leaves half of both.

Of a finding's history a line has the last entries, and how many come before, in earlier lines.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from lrptrain.files import MOST_BYTES, check_regular, plain, read_whole
from lrptrain.findings import Finding
from lrptrain.findings.recorded import unreadable_part

EVENTS = "events.jsonl"
FORMAT = 2
"""The number of the form in which runs are written, and the only one that is read."""
_CONTINUED = "continued_after"
LARGEST_COUNT = 2**53
"""No run counts further: above, a browser's numbers are no integers any more, and above 2**63 those of tables end."""

Moment = tuple[int, int]
"""Epoch and step of an evaluation."""


_HISTORY = ("history", "verdicts", "epochs")
MOST_ENTRIES = 20
"""A line has so many entries of a history: enough for a gate, and lines that do not grow."""
_PAST = "past"
"""The key that says how many entries of a finding's history are in earlier lines alone."""


@dataclass(frozen=True)
class Timeline:
    """What stands, and what does not.

    Attributes:
        events: Evaluations in order of time, of one written twice the later line; see `parse_event`.
        ids: The id of each event that has one, by its moment.
        unreadable: The number of lines that are no evaluations.
    """

    events: list[dict[str, Any]]
    ids: dict[Moment, str] = field(default_factory=dict)
    unreadable: int = 0


def continued_after(moment: Moment | None) -> dict[str, Any]:
    """Return what the line says after which no earlier evaluation of a later moment stands; None for none at all."""
    return {_CONTINUED: None if moment is None else {"epoch": moment[0], "step": moment[1]}}


def with_last_entries(findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return findings for a line, of long histories the last entries: all of them in all lines would grow as n²."""
    return [
        {**each, _PAST: past, **{name: each[name][-MOST_ENTRIES:] for name in _HISTORY if name in each}}
        if (past := len(each.get("verdicts", ())) - MOST_ENTRIES) > 0
        else each
        for each in findings
    ]


def _with_histories(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return evaluations in order of time whose findings have their whole histories."""
    whole: list[dict[str, Any]] = []
    before: dict[Any, dict[str, Any]] = {}
    for event in events:
        findings = [_continued(each, before.get(_identity(each))) for each in event["findings"]]
        before = {_identity(each): each for each in findings}
        whole.append({**event, "findings": findings})
    return whole


def _identity(finding: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(finding.get(name) for name in ("kind", "name", "role"))


def _continued(finding: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Return a finding with its whole history; as it is where the line before does not have that."""
    past = finding.get(_PAST)
    known = 0 if before is None else len(before.get("verdicts", ()))
    if before is None or not _is_count(past) or known != past + MOST_ENTRIES - 1:
        return finding
    rest = {key: value for key, value in finding.items() if key != _PAST}
    return rest | {name: [*before[name][:past], *rest[name]] for name in _HISTORY if name in rest and name in before}


def has_continuation(data: bytes) -> bool:
    """Return whether lines may hold what `continued_after` gives; only a text of that name makes it say so wrongly."""
    return f'"{_CONTINUED}"'.encode() in data


def moment_of(event: dict[str, Any]) -> Moment:
    """Return the epoch and step of an evaluation."""
    return event["epoch"], event["step"]


def read_timeline(folder: Path, until: str | None = None) -> Timeline:
    """Read the evaluations of a run: those that stand, or stood when the evaluation of the id `until` was written."""
    return timeline_of(_lines(folder / EVENTS), until)


class UnreadableRunError(ValueError):
    """Something of a run's record cannot be read, so that nobody can say whether it passes."""


@dataclass(frozen=True)
class Judged:
    """The evaluations of a run that stand, where every line can be read.

    Attributes:
        events: In order of time; see `parse_event`.
        findings: What the last one found.
        id: The id of the last one; "" where the record does not say it.
        cut: Findings of whose history no more than `MOST_ENTRIES` is there, by name, as of a run continued elsewhere.
    """

    events: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...]
    id: str = ""
    cut: tuple[str, ...] = ()

    @property
    def last(self) -> dict[str, Any]:
        """The last evaluation."""
        return self.events[-1]

    def times_relied(self, finding: Finding) -> int:
        """Return in how many evaluations in a row the model has relied on a finding of the last one.

        Passed over are those before it that could tell nothing.
        """
        entries = [*zip(finding.epochs, finding.verdicts, strict=False)]
        times = 0
        for event in reversed(self.events):
            recorded = {_identity(each): each["verdict"] for each in event["findings"]}
            verdict = recorded.get(finding.identity, "")
            if entries and entries[-1][0] == event["epoch"]:
                _, verdict = entries.pop()
            if not could_tell(event) and event is not self.last:
                continue
            if verdict != "relies":
                break
            times += 1
        return times


def could_tell(event: dict[str, Any]) -> bool:
    """Return whether an evaluation says anything of the model."""
    return bool(event.get("power", {}).get("tells", True))


def read_for_judgement(folder: Path) -> Judged | None:
    """Return the evaluations that stand; None where none was written yet.

    What a page passes over, since the rest is still worth a look, a gate must not: it would pass what it cannot read.
    Forgiven is only a line of a process that was killed while it wrote it, once a later line has the same evaluation.

    Raises:
        OSError: If `events.jsonl` is not there, or no regular file.
        UnreadableRunError: If any line of it, or anything in it, is not of the form that a monitor writes.
    """
    lines = read_whole(folder / EVENTS).split(b"\n")
    if refused := refusal(folder):
        raise UnreadableRunError(refused)
    contents = [_parse(line) for line in lines]
    moments = [_moment(content) for content in contents]
    for number, (line, content) in enumerate(zip(lines, contents, strict=True), start=1):
        try:
            problem = "" if not line.strip() else _unreadable_part(content)
        except RecursionError:
            problem = "values nested too deep"
        beginning = _beginning(line) if _moment(content) is None else None
        if problem and (beginning is None or beginning not in moments[number:]):
            raise UnreadableRunError(f"line {number} of {folder / EVENTS} holds {problem}")
    timeline = timeline_of(lines)
    if not timeline.events:
        return None
    last = timeline.events[-1]
    cut = tuple(each["name"] for each in last["findings"] if _PAST in each)
    findings = tuple(map(Finding.from_dict, last["findings"]))
    return Judged(tuple(timeline.events), findings, timeline.ids[moment_of(last)], cut)


def _unreadable_part(content: Any) -> str:
    """Return what of a line's content is not of the form that a monitor writes; "" where all of it is."""
    event = parse_event(content)
    if event is None:
        return "no evaluation"
    if _CONTINUED in content and not _is_continuation(content):
        return f"an unknown {_CONTINUED}"
    scalars = content.get("scalars")
    if not isinstance(scalars, dict) or not all(map(_is_number, scalars.values())):
        return "an evaluation without its scalars"
    if "power" in content and "power" not in event:
        return "power of an unknown form"
    findings = content.get("findings")
    if not isinstance(findings, list):
        return "an evaluation without its findings"
    return next((part for part in map(unreadable_part, findings) if part), "")


def _beginning(line: bytes) -> Moment | None:
    """Return the moment of an evaluation of which only the first part was written."""
    start = re.match(rb'\{"epoch": (-?\d{1,16}), "step": (-?\d{1,16}),', line)
    return None if start is None else (int(start[1]), int(start[2]))


def refusal(folder: Path) -> str:
    """Return why the run in a folder is not read at all: its first line is of another format; "" if it is not."""
    try:
        check_regular(folder / EVENTS)
        with (folder / EVENTS).open("rb") as file:
            first = _parse(file.readline(MOST_BYTES))
    except OSError:
        return ""
    if _moment(first) is None or first.get("format") == FORMAT:
        return ""
    form = f"format {first['format']}" if _is_count(first.get("format")) else "an older format without a number"
    return (
        f"{str(folder)!r} is a run in {form}, written by another version of lrptrain, and this one reads format "
        f"{FORMAT}: open it with the version that wrote it"
    )


def stands(folder: Path, moment: Moment) -> bool:
    """Return whether an evaluation stands: its table may be there all the same, of a timeline that was left.

    A folder without `events.jsonl` says nothing of that: whatever is there stands.
    """
    path = folder / EVENTS
    try:
        about = path.stat()
    except OSError:
        return True
    return moment in _standing(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _standing(path: Path, changed: int, size: int) -> frozenset[Moment]:
    return frozenset(timeline_of(_lines(path)).ids)


def _lines(path: Path) -> list[bytes]:
    try:
        return read_whole(path).split(b"\n")
    except OSError:  # there is none, it is no file, or one without an end
        return []


def timeline_of(lines: Iterable[bytes], until: str | None = None, with_findings: bool = True) -> Timeline:
    """Return what stands after the lines were written one after the other, or after the one of an id."""
    standing: dict[Moment, dict[str, Any]] = {}
    ids: dict[Moment, str] = {}
    unreadable = 0
    for line in lines:
        if not line.strip():
            continue
        content = _parse(line)
        event = parse_event(content, with_findings)
        if event is None:
            unreadable += 1
            continue
        if _is_continuation(content):
            last = _moment(content[_CONTINUED])
            later = [moment for moment in standing if last is None or moment > last]
            for moment in later:
                del standing[moment]
        moment = moment_of(event)
        # A run that is resumed may evaluate the same moment once more: the later line counts.
        standing[moment] = event
        ids[moment] = content["id"] if isinstance(content.get("id"), str) else ""
        if until is not None and ids[moment] == until:
            break
    events = _with_histories(standing[moment] for moment in sorted(standing))
    return Timeline(events, {moment: ids[moment] for moment in standing}, unreadable)


def parse_event(content: Any, with_findings: bool = True) -> dict[str, Any] | None:
    """Return an evaluation without whatever is not of its form; None if it is none.

    Returns:
        `epoch`, `step`, `format`, `scalars` (numbers, or None for what was no finite number), and `findings` (see
        `Finding.to_dict`); and where the record says them, `power` and `weights`: see `EpochRecord`.
    """
    # A line of JSON may still be none of ours: without epoch and step there is no place for it in time.
    if not isinstance(content, dict) or _moment(content) is None or content.get("format") != FORMAT:
        return None
    scalars = content.get("scalars")
    findings = content.get("findings") if with_findings else None
    return {
        "epoch": content["epoch"],
        "step": content["step"],
        "format": FORMAT,
        "scalars": {k: v for k, v in scalars.items() if _is_number(v)} if isinstance(scalars, dict) else {},
        "findings": [each for each in findings if not unreadable_part(each)] if isinstance(findings, list) else [],
        **({"power": content["power"]} if _is_power(content.get("power")) else {}),
        **({"weights": content["weights"]} if _is_moment_or_none(content.get("weights")) else {}),
    }


def _is_power(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("text"), str) and isinstance(value.get("tells"), bool)


def _parse(line: bytes) -> Any:
    try:
        return plain(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _is_continuation(content: dict[str, Any]) -> bool:
    if _CONTINUED not in content:
        return False
    return content[_CONTINUED] is None or _moment(content[_CONTINUED]) is not None


def _moment(value: Any) -> Moment | None:
    epoch, step = (value.get(name) if isinstance(value, dict) else None for name in ("epoch", "step"))
    return (epoch, step) if _is_count(epoch) and _is_count(step) else None


def _is_count(value: Any) -> TypeGuard[int]:
    # JSON has integers of any size, and `type` tells them from true and false.
    return type(value) is int and abs(value) <= LARGEST_COUNT


def _is_moment_or_none(value: Any) -> bool:
    return _moment(value) is not None or value == {"epoch": None, "step": None}


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, float) or _is_count(value)
