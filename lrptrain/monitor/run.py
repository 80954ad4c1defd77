"""The folder of a monitored run: new, continued from a checkpoint, or branched off from another run.

`run.json` holds, beside what was monitored, what tells runs apart:

    id        of the run, also in its checkpoints
    parent    of a branch: name and id of the other run, and the epoch and step of the last evaluation both share
    writer    the process that writes: host, pid and a key of its own
    ended     true once training came to its end
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

from lrptrain.files import append_json_line, to_json, write_atomically, write_json, write_text
from lrptrain.loggers.local import CLASS_MAPS, SAMPLES, evaluation_name
from lrptrain.loggers.timeline import EVENTS, Moment, continued_after, moment_of, read_timeline
from lrptrain.trainers.run_folder import new_run_folder, run_parent

SETTINGS = "run.json"


@dataclass(frozen=True)
class RunPoint:
    """Where a checkpoint stands in the record of its run.

    Attributes:
        name: The name of the run's folder.
        run_id: The id of the run.
        evaluation: The moment of the last evaluation before the checkpoint; None if there was none.
    """

    name: str
    run_id: str
    evaluation: Moment | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a checkpoint holds them."""
        return {**asdict(self), "evaluation": None if self.evaluation is None else list(self.evaluation)}

    @classmethod
    def from_dict(cls, values: Any) -> "RunPoint | None":
        """Return what `to_dict` gave; None of anything else, as in checkpoints of earlier versions.

        A name that is no plain name of a folder is refused: a checkpoint comes from anywhere, and must not choose where
        files are written.
        """
        if not isinstance(values, dict) or not {"name", "run_id", "evaluation"} <= set(values):
            return None
        name = values["name"]
        if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name or "\\" in name:
            return None
        evaluation = values["evaluation"]
        return cls(
            name, str(values["run_id"]), None if evaluation is None else (int(evaluation[0]), int(evaluation[1]))
        )


@dataclass
class MonitoredRun:
    """A folder that one process writes to.

    Attributes:
        folder: The folder.
        run_id: The id of the run.
        parent: Of a branch, what `run.json` says of the other run.
        notice: What the user should know about how the run goes on; empty for a new one.
    """

    folder: Path
    run_id: str = field(default_factory=lambda: uuid4().hex)
    parent: dict[str, Any] | None = None
    notice: str = ""
    _origin: tuple[Path, Moment | None] | None = None
    _drops_after: tuple[Moment | None] | None = None
    _writer: dict[str, Any] = field(default_factory=lambda: _this_process())
    _settings: dict[str, Any] | None = None

    def prepare(self, settings: dict[str, Any]) -> None:
        """Write `run.json`, and the history of a branch; what failed before is tried again.

        Args:
            settings: What is monitored, and how.

        Raises:
            OSError: If there is no room.
        """
        if self._settings is None:
            content = {"id": self.run_id, "parent": self.parent, "writer": self._writer, "ended": False, **settings}
            write_json(self.folder / SETTINGS, content, default=str)
            self._settings = content
        if self._origin is not None:
            _copy_history(*self._origin, self.folder)
            self._origin = None

    def drop_later(self) -> None:
        """Mark what was evaluated after the checkpoint, before anything new is written.

        Raises:
            OSError: If there is no room; nothing must be written then, for the mark would drop it, too.
        """
        if self._drops_after is not None:
            append_json_line(self.folder / EVENTS, continued_after(self._drops_after[0]))
            self._drops_after = None

    def is_taken(self) -> bool:
        """Return whether another process has continued the run meanwhile, as a job that was queued again does."""
        writer = _identity(self.folder).get("writer")
        return self._settings is not None and isinstance(writer, dict) and writer.get("key") != self._writer["key"]

    def end(self) -> None:
        """Note that training has come to its end: going on from an earlier checkpoint is a branch from now on."""
        if self._settings is not None and not self.is_taken():
            self._settings["ended"] = True
            write_json(self.folder / SETTINGS, self._settings, default=str)


def start_run(root: str | Path, name: str | None = None, suffix: str = "") -> MonitoredRun:
    """Start a run in a new folder, `<root>/relevance/<name>`.

    Args:
        root: The trainer's `default_root_dir`.
        name: The name of the run, numbered if there is such a folder; None for the time.
        suffix: Text behind the name.
    """
    return MonitoredRun(new_run_folder(root, name, suffix))


def continue_run(root: str | Path, point: RunPoint, name: str | None = None) -> MonitoredRun:
    """Go on with the run of a checkpoint.

    In its own folder, if that lies below `root`, no other process writes to it, and the run did not end after the
    checkpoint; evaluations later than the checkpoint are dropped then. Otherwise in a folder of a branch, which names
    its parent and begins with a copy of the evaluations that both share.

    Args:
        root: The trainer's `default_root_dir`.
        point: Where the checkpoint stands.
        name: The name asked for; one that is not that of the checkpoint's run asks for a branch.
    """
    folder = run_parent(root) / point.name
    identity = _identity(folder)
    if identity.get("id") != point.run_id:
        return branch_run(
            root, point, name, f"the run {point.name!r} of the checkpoint is not in {str(folder.parent)!r}"
        )
    if name is not None and not _is_numbered(point.name, name):
        return branch_run(root, point, name, f"the checkpoint is of the run {point.name!r}")
    if _is_running(identity.get("writer")):
        return branch_run(root, point, name, f"another process writes to {point.name!r}")
    standing = [moment_of(event) for event in read_timeline(folder).events]
    later = [moment for moment in standing if point.evaluation is None or moment > point.evaluation]
    if later and identity.get("ended"):
        return branch_run(root, point, name, f"the run {point.name!r} went on from the checkpoint to its end")
    run = MonitoredRun(folder, point.run_id, identity.get("parent"))
    if later:
        run._drops_after = (point.evaluation,)
        run.notice = f"{point.name!r} goes on {_after(point.evaluation)}; {len(later)} later evaluations are dropped"
    return run


def branch_run(root: str | Path, point: RunPoint, name: str | None, reason: str) -> MonitoredRun:
    """Go on in a folder of its own, with a copy of what was evaluated up to a point.

    Args:
        root: The trainer's `default_root_dir`.
        point: What the branch shares with the other run.
        name: The name of the branch, numbered if there is such a folder; None for that of the other run.
        reason: Why it does not go on in the folder of the other run.
    """
    run = MonitoredRun(new_run_folder(root, name or point.name))
    last = None if point.evaluation is None else {"epoch": point.evaluation[0], "step": point.evaluation[1]}
    run.parent = {"run": point.name, "id": point.run_id, "evaluation": last}
    run.notice = f"{reason}: this run goes on in {run.folder.name!r}"
    origin = run_parent(root) / point.name
    if _identity(origin).get("id") == point.run_id:
        run._origin = (origin, point.evaluation)
    return run


def _copy_history(origin: Path, last: Moment | None, folder: Path) -> None:
    """Copy the evaluations of a run up to a moment, with their tables; pictures stay where they are."""
    shared = [event for event in read_timeline(origin).events if last is not None and moment_of(event) <= last]
    if not shared:
        return
    for event in shared:
        for part in (SAMPLES, CLASS_MAPS):
            name = f"{evaluation_name(*moment_of(event))}.parquet"
            if (origin / part / name).exists():
                write_atomically(folder / part / name, partial(shutil.copyfile, origin / part / name))
    path = folder / EVENTS
    # What the branch itself may have evaluated already, if there was no room for the history at first, comes last.
    since = path.read_text(encoding="utf-8") if path.exists() else ""
    write_text(path, "".join(f"{to_json(event)}\n" for event in shared) + since)


def _identity(folder: Path) -> dict[str, Any]:
    """Return what `run.json` holds; empty if it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        content = loads((folder / SETTINGS).read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}


def _this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "key": uuid4().hex}


def _is_running(writer: Any) -> bool:
    """Return whether a writer is a process of this machine that is still there; of others nothing is known."""
    if not isinstance(writer, dict) or writer.get("host") != socket.gethostname():
        return False
    pid = writer.get("pid")
    # In this very process, an earlier trainer has come to its end.
    if not isinstance(pid, int) or pid <= 0 or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)  # signal 0 is not sent: it only asks whether there is such a process
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _is_numbered(folder_name: str, name: str) -> bool:
    """Return whether a folder was made for a name: `ours` and `ours-2` were for `ours`."""
    return folder_name == name or folder_name.removeprefix(f"{name}-").isdecimal()


def _after(moment: Moment | None) -> str:
    return "from its start" if moment is None else f"after epoch {moment[0]}, step {moment[1]}"
