"""The folder of a monitored run: new, continued from a checkpoint, or branched off from another run.

`run.json` holds, beside what was monitored, what tells runs apart:

    id        of the run, also in its checkpoints
    name      that was asked for, also where the folder has a number behind it; null where none was
    parent    of a branch: name and id of the other run, and the last evaluation that both share
    writer    the process that writes: host, pid and a key of its own
    ended     true once training, or a validation by itself, came to its end
    kept      then: which evaluation is of the weights that training left; null where none is, or the last one failed
"""

import os
import shutil
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from json import loads
from pathlib import Path
from typing import Any
from uuid import uuid4

from lrptrain.files import read_text, read_whole, to_json, write_atomically, write_json, write_text
from lrptrain.loggers import EpochRecord, RecordWriter
from lrptrain.loggers.local import CLASS_MAPS, SAMPLES, evaluation_name
from lrptrain.loggers.timeline import EVENTS, Moment, continued_after, moment_of, read_timeline, with_last_entries
from lrptrain.trainers.run_folder import new_run_folder, run_parent

SETTINGS = "run.json"


@dataclass(frozen=True)
class EvaluationKey:
    """Which evaluation of a run, among several timelines: those of one moment in two timelines differ in their id."""

    epoch: int
    step: int
    id: str

    @classmethod
    def new(cls, moment: Moment) -> "EvaluationKey":
        """Return the key of an evaluation that is about to be made."""
        return cls(*moment, uuid4().hex[:12])

    @property
    def moment(self) -> Moment:
        """Epoch and step."""
        return self.epoch, self.step


@dataclass(frozen=True)
class RunPoint:
    """Where a checkpoint stands in the record of its run.

    Attributes:
        last: The last evaluation before the checkpoint; None if there was none.
        pending: An evaluation that may have been completed since: that amid which the checkpoint was written, or one of
            its weights, if training ended there.
    """

    name: str
    run_id: str
    last: EvaluationKey | None
    pending: EvaluationKey | None = None

    @classmethod
    def from_dict(cls, values: Any) -> "RunPoint | None":
        """Return a point of its plain values, as a checkpoint holds them; None of anything else.

        A name that is no plain name of a folder is refused: a checkpoint comes from anywhere, and must not choose where
        files are written.
        """
        if not isinstance(values, dict) or not {"name", "run_id", "last", "pending"} <= set(values):
            return None
        name = values["name"]
        if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name or "\\" in name:
            return None
        last, pending = (values[key] and EvaluationKey(**values[key]) for key in ("last", "pending"))
        return cls(name, str(values["run_id"]), last, pending)


@dataclass
class MonitoredRun:
    """A folder that one process writes to.

    Attributes:
        name: The name that was asked for; None if it is the time.
        parent: Of a branch, what `run.json` says of the other run.
        notice: What the user should know about how the run continues; empty for a new one.
    """

    folder: Path
    run_id: str = field(default_factory=lambda: uuid4().hex)
    name: str | None = None
    parent: dict[str, Any] | None = None
    notice: str = ""
    _origin: tuple[Path, EvaluationKey] | None = None
    _marks: dict[str, Any] = field(default_factory=dict)
    _writer: dict[str, Any] = field(default_factory=lambda: _this_process())
    _settings: dict[str, Any] | None = None

    def prepare(self, settings: dict[str, Any]) -> None:
        """Write `run.json`, and the history of a branch; what failed before is tried again."""
        if self._settings is None:
            known = {"id": self.run_id, "name": self.name, "parent": self.parent, "writer": self._writer}
            content = {**known, "ended": False, **settings}
            write_json(self.folder / SETTINGS, content, default=str)
            self._settings = content
        if self._origin is not None:
            _copy_history(*self._origin, self.folder)
            self._origin = None

    def write(self, writer: RecordWriter, record: EpochRecord, key: EvaluationKey) -> EpochRecord:
        """Write an evaluation; the first one of a run that continues drops what was later than the checkpoint."""
        written = writer.write(self.folder, record, {"id": key.id, **self._marks})
        self._marks = {}
        return written

    def is_taken(self) -> bool:
        """Return whether another process has continued the run meanwhile, as a job that was queued again does."""
        writer = read_settings(self.folder).get("writer")
        return self._settings is not None and isinstance(writer, dict) and writer.get("key") != self._writer["key"]

    def end(self, kept: EvaluationKey | None = None) -> None:
        """Note that training has ended, and with which weights: resuming from a checkpoint is a branch from now on."""
        if self._settings is not None and not self.is_taken():
            self._settings |= {"ended": True, "kept": None if kept is None else asdict(kept)}
            write_json(self.folder / SETTINGS, self._settings, default=str)


def start_run(root: str | Path, name: str | None = None, suffix: str = "") -> MonitoredRun:
    """Start a run in a new folder, `<root>/relevance/<name><suffix>`, numbered if there is one; None for the time."""
    return MonitoredRun(new_run_folder(root, name, suffix), name=name and f"{name}{suffix}")


def continue_run(root: str | Path, point: RunPoint, name: str | None = None) -> MonitoredRun:
    """Resume the run of a checkpoint.

    In its own folder, if that lies below `root`, no other process writes to it, and the run did not end after the
    checkpoint; evaluations later than the checkpoint are dropped then. Otherwise, or for another name, in a folder of a
    branch, which names its parent and begins with a copy of the evaluations that both share.
    """
    folder = run_parent(root) / point.name
    identity = read_settings(folder)
    if identity.get("id") != point.run_id:
        return branch_run(
            root, point, name, f"the run {point.name!r} of the checkpoint is not in {str(folder.parent)!r}"
        )
    if name is not None and not is_numbered(point.name, name):
        return branch_run(root, point, name, f"the checkpoint is of the run {point.name!r}")
    if _is_running(identity.get("writer")):
        return branch_run(root, point, name, f"another process writes to {point.name!r}")
    timeline = read_timeline(folder)
    last = _last_shared(point, folder)
    if last is not None and timeline.ids.get(last.moment) != last.id:
        return branch_run(root, point, name, f"the run {point.name!r} has evaluations after the checkpoint")
    later = [moment for moment in timeline.ids if last is None or moment > last.moment]
    if later and identity.get("ended"):
        return branch_run(root, point, name, f"the run {point.name!r} ran from the checkpoint to its end")
    run = MonitoredRun(folder, point.run_id, identity.get("name"), identity.get("parent"))
    if later:
        run._marks = continued_after(None if last is None else last.moment)
        after = "from its start" if last is None else f"after epoch {last.epoch}, step {last.step}"
        run.notice = f"{point.name!r} resumes {after}; {len(later)} later evaluations are dropped"
    return run


def branch_run(root: str | Path, point: RunPoint, name: str | None, reason: str) -> MonitoredRun:
    """Continue in a folder of its own, with a copy of what was evaluated up to a point."""
    run = MonitoredRun(new_run_folder(root, name or point.name), name=name or point.name)
    origin = run_parent(root) / point.name
    is_there = read_settings(origin).get("id") == point.run_id
    last = _last_shared(point, origin) if is_there else point.last
    run.parent = {"run": point.name, "id": point.run_id, "evaluation": None if last is None else asdict(last)}
    run.notice = f"{reason}: this run continues in {run.folder.name!r}"
    if is_there and last is not None:
        run._origin = (origin, last)
    return run


def _last_shared(point: RunPoint, folder: Path) -> EvaluationKey | None:
    """Return the last evaluation with the weights that the checkpoint, too, comes from."""
    pending = point.pending
    # Only an evaluation that was written has ended the timeline of its id.
    if pending is not None and read_timeline(folder, until=pending.id).ids.get(pending.moment) == pending.id:
        return pending
    return point.last


def _copy_history(origin: Path, last: EvaluationKey, folder: Path) -> None:
    """Copy the evaluations of a run up to one, with the tables that are still theirs; pictures stay where they are."""
    then = read_timeline(origin, until=last.id)
    now = read_timeline(origin).ids
    shared = [event for event in then.events if moment_of(event) <= last.moment]
    lines = [
        to_json({**event, "findings": with_last_entries(event["findings"]), "id": then.ids[moment_of(event)]})
        for event in shared
    ]
    path = folder / EVENTS
    # What the branch itself may have evaluated already, if there was no room for the history at first, comes last.
    since = read_text(path) if path.exists() else ""
    write_text(path, "".join(f"{line}\n" for line in lines) + since)
    for moment in map(moment_of, shared):
        if now.get(moment) != then.ids[moment]:
            continue  # the run has gone on from before, and written another table of this name
        for part in (SAMPLES, CLASS_MAPS):
            name = f"{evaluation_name(*moment)}.parquet"
            if (origin / part / name).exists():
                write_atomically(folder / part / name, partial(shutil.copyfile, origin / part / name))


def read_settings(folder: Path) -> dict[str, Any]:
    """Return what `run.json` holds; empty if it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        content = loads(read_whole(folder / SETTINGS))
        if isinstance(content, dict):
            return content
    return {}


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "started": _start_of(pid), "key": uuid4().hex}


def _start_of(pid: int) -> str | None:
    """Return what tells a process from others that had or will have its number; None where that is not known."""
    with suppress(OSError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The name, in brackets, may have spaces; 19 fields behind it is the start, in ticks since the machine's.
        return f"{boot}/{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    return None


def _is_running(writer: Any) -> bool:
    """Return whether a writer is a process of this machine that is still there; of others nothing is known."""
    if not isinstance(writer, dict) or writer.get("host") != socket.gethostname():
        return False
    pid = writer.get("pid")
    # In this very process, an earlier trainer has come to its end.
    if not isinstance(pid, int) or pid <= 0 or pid == os.getpid():
        return False
    if writer.get("started") is not None and _start_of(os.getpid()) is not None:
        return _start_of(pid) == writer["started"]
    try:
        os.kill(pid, 0)  # signal 0 is not sent: it only asks whether there is such a process
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def is_numbered(folder_name: str, name: str) -> bool:
    """Return whether a folder was made for a name: `ours` and `ours-2` were for `ours`."""
    return folder_name == name or folder_name.removeprefix(f"{name}-").isdecimal()
