"""Run as a script by test_kills.py: `python lives.py FOLDER LIVES SEED`.

Each life is a process that goes on from some checkpoint of an earlier one, or starts anew, evaluates a few epochs, and
is killed at a random file event, or ends. What the folders say afterwards is compared with what was evaluated.
"""

import io
import os
import pickle
import random
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lrptrain.loggers import EpochRecord, Input, Picture, RecordWriter, read_events, read_findings, read_samples
from lrptrain.monitor.run import EvaluationKey, MonitoredRun, RunPoint, continue_run, start_run

EPOCHS = 3  # of one life, at most
History = list[tuple[int, int]]
"""Epoch and life of each evaluation that should stand."""


@dataclass
class Checkpoint:
    """What a life goes on from."""

    point: RunPoint | None = None
    history: History = field(default_factory=list)

    @property
    def last(self) -> EvaluationKey | None:
        return None if self.point is None else self.point.last


@dataclass
class Reported:
    """What a life said before it ended."""

    folder: str = ""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    writing: tuple[int, int] | None = None
    amid: tuple[Checkpoint, tuple[int, int]] | None = None


class Kill:
    """Ends this process at its n-th file event, before or amid it."""

    def __init__(self, event: int) -> None:
        self.left = event

    def is_due(self) -> bool:
        self.left -= 1
        return self.left == 0

    def install(self) -> None:
        """Count what `lrptrain.files` asks of the disk."""
        kill = self

        class Torn(io.FileIO):
            def write(self, data):
                if kill.is_due():
                    super().write(bytes(data)[: random.randrange(len(data))])
                    os._exit(9)
                return super().write(data)

        opened = Path.open
        Path.open = lambda path, mode="r", *others, **options: (  # type: ignore[method-assign,assignment]
            Torn(path, mode) if mode == "ab+" else opened(path, mode, *others, **options)
        )
        for name in ("replace", "fsync", "mkdir"):
            setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, function):
        def counted(*arguments, **options):
            if self.is_due():
                os._exit(9)
            result = function(*arguments, **options)
            if self.is_due():
                os._exit(9)
            return result

        return counted


def record(epoch: int, life: int) -> EpochRecord:
    """An evaluation that says whose it is."""
    pixels = np.full((8, 8, 3), life % 256, np.uint8)
    return EpochRecord(
        epoch=epoch,
        step=10 * epoch,
        scalars={"relevance/life": float(life)},
        samples={"sample_id": ["a", "b"], "life": [life, life]},
        pictures=[Picture("a", "", pixels)],
        inputs={"a": lambda: Input("a", (2, 2), pixels)},
    )


def live(root: Path, life: int, start: Checkpoint, ends: bool, name: str, pipe: int) -> None:
    """Evaluate, and report through the pipe after every step; never returns."""

    def report() -> None:
        os.write(pipe, pickle.dumps(reported))

    reported = Reported()
    run: MonitoredRun | None = None
    history = list(start.history)
    first = history[-1][0] + 1 if history else 0
    writer = RecordWriter(float("inf"))
    for epoch in range(first, first + EPOCHS):
        reported.writing = (epoch, life)
        report()
        if run is None:
            run = start_run(root, name) if start.point is None else continue_run(root, start.point, name)
            reported.folder = str(run.folder)
            report()
        run.prepare({"confidence": 0.95})
        key = EvaluationKey.new((epoch, 10 * epoch))
        if random.random() < 0.3:  # a checkpoint amid the evaluation
            last = reported.checkpoints[-1].last if reported.checkpoints else start.last
            point = RunPoint(run.folder.name, run.run_id, last, key)
            reported.amid = (Checkpoint(point, list(history)), (epoch, life))
            report()
        run.write(writer, record(epoch, life), key)
        history.append((epoch, life))
        point = RunPoint(run.folder.name, run.run_id, key)
        reported.checkpoints.append(Checkpoint(point, list(history)))
        reported.writing = None
        report()
    if ends and run is not None:
        run.end()
    os._exit(0)


def last_report(pipe: int) -> Reported:
    """Return the last whole report in a pipe."""
    reported = Reported()
    with os.fdopen(pipe, "rb") as reader:
        while True:
            try:
                reported = pickle.load(reader)
            except (EOFError, pickle.UnpicklingError):
                return reported


def spawn(root: Path, life: int, start: Checkpoint, chance: random.Random) -> tuple[Reported, bool]:
    """Let one life run; return what it reported, and whether it was killed."""
    event = chance.randrange(1, 80) if chance.random() < 0.7 else 0
    ends = chance.random() < 0.5
    # A life of the same name, or of another, which asks for a branch.
    name = start.point.name.split("-")[0] if start.point and chance.random() < 0.8 else chance.choice("xyz")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        random.seed(chance.random())
        Kill(event).install()
        live(root, life, start, ends, name, writing)
    os.close(writing)
    reported = last_report(reading)  # to the end, which is the child's: a full pipe would let it wait
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9), f"life {life} failed by itself"
    return reported, code == 9


def said(folder: Path, torn: set[tuple[str, int, int]]) -> History:
    """Return the evaluations that stand in a folder, by its lines; its tables say the same.

    Args:
        folder: The folder of a run.
        torn: Folder, epoch and life of evaluations that a kill cut off, maybe between table and line.
    """
    events = read_events(folder)
    stands = [(event["epoch"], int(event["scalars"]["relevance/life"])) for event in events]
    assert len({event["epoch"] for event in events}) == len(events), "an evaluation is doubled"
    table = read_samples(folder)
    for epoch, life in zip(table.get("epoch", []), table.get("life", []), strict=True):
        assert (epoch, life) in stands or (folder.name, epoch, life) in torn, (
            f"{folder.name}: a table of epoch {epoch} is of life {life}; {stands} stand"
        )
    read_findings(folder)
    return stands


class Truth:
    """What the folders should say, life by life."""

    def __init__(self, root: Path) -> None:
        self.parent = root / "relevance"
        self.expected: dict[str, History] = {}
        self.torn: set[tuple[str, int, int]] = set()

    def compare(self, life: int, start: Checkpoint, reported: Reported, killed: bool) -> None:
        """Compare the folder of a life with what it evaluated, and all others with what they said before."""
        if reported.folder:
            folder = Path(reported.folder)
            if killed and reported.writing is not None:
                self.torn.add((folder.name, *reported.writing))
            done = reported.checkpoints[-1].history if reported.checkpoints else start.history
            allowed = [done, [*done, *([reported.writing] if reported.writing else [])]]
            if killed and not reported.checkpoints:
                # Nothing was evaluated: the folder is as it was, and that of a branch has no history yet.
                allowed.append(self.expected.get(folder.name, []))
            stands = said(folder, self.torn)
            assert stands in allowed, f"life {life} of {folder.name}: {stands} stand, {allowed} were evaluated"
            self.expected[folder.name] = stands
        for name, history in self.expected.items():
            assert said(self.parent / name, self.torn) == history, f"life {life} changed {name}"

    def checkpoints_of(self, reported: Reported) -> list[Checkpoint]:
        """Return what later lives may go on from; one amid an evaluation counts that in if it was completed."""
        found = list(reported.checkpoints)
        if reported.amid is not None:
            checkpoint, evaluation = reported.amid
            completed = evaluation in self.expected[Path(reported.folder).name]
            found.append(Checkpoint(checkpoint.point, checkpoint.history + [evaluation] * completed))
        return found


def main(root: Path, lives: int, seed: int) -> None:
    """Let lives follow one another, and compare after each."""
    warnings.simplefilter("ignore")
    os.fsync = lambda fd: None  # a life is killed, not the machine: to wait for the disk shows nothing
    chance = random.Random(seed)
    checkpoints = [Checkpoint()]
    truth = Truth(root)
    kills = 0
    for life in range(lives):
        # Often the last one, as of a run that goes on; sometimes any, as of a branch or a rewind.
        start = checkpoints[-1] if chance.random() < 0.5 else chance.choice(checkpoints)
        reported, killed = spawn(root, life, start, chance)
        kills += killed
        truth.compare(life, start, reported, killed)
        checkpoints += truth.checkpoints_of(reported)
    print(f"{lives} lives, {kills} kills, {len(truth.expected)} folders, {len(checkpoints)} checkpoints")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
