"""Where a monitor writes: the folder of its run, which is opened when the first evaluation is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lrptrain.loggers import EpochRecord, RecordWriter
from lrptrain.monitor.run import EvaluationKey, MonitoredRun, RunPoint, branch_run, continue_run, start_run
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.processes import SharedText


@dataclass
class RunRecorder:
    """Opens the folder of a run, goes on with an earlier one, and writes evaluations to it.

    Attributes:
        writer: Writes records, within its budget of megabytes.
        run_name: The name asked for; None for the time.
        run: The run; None before the first evaluation, and in all processes but the first.
        resumed: Where the checkpoint stands that the run goes on from; None if it is a new one.
        written: The last evaluation that was written.
    """

    writer: RecordWriter
    run_name: str | None = None
    run: MonitoredRun | None = None
    resumed: RunPoint | None = None
    written: EvaluationKey | None = None
    _spawned_folder: SharedText = field(default_factory=SharedText)

    def reset(self) -> None:
        """Forget an earlier run."""
        self.run = None
        self.resumed = None
        self.written = None
        self._spawned_folder.text = ""

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None before the first evaluation, and in all processes but the first."""
        return self.spawned_folder if self.run is None else self.run.folder

    @property
    def spawned_folder(self) -> Path | None:
        """The folder in which processes wrote that this one started, as by `strategy="ddp_spawn"`; None without any."""
        # The process that called `fit` has seen nothing else of what the others did.
        text = self._spawned_folder.text
        return Path(text) if self.run is None and text else None

    def point(self, pending: EvaluationKey | None = None) -> RunPoint | None:
        """Return where a checkpoint of this moment stands.

        Args:
            pending: The evaluation that is being made, if any.
        """
        if self.run is None:
            return self.resumed
        return RunPoint(self.run.folder.name, self.run.run_id, self.written, pending)

    def resume(self, point: RunPoint | None) -> None:
        """Go on from a checkpoint; the folder is looked for when something is written."""
        self.run = None
        self.resumed = point
        self.written = None if point is None else point.last

    def open(self, context: TrainingContext) -> str:
        """Make or find the folder of the run, if that is not done.

        Returns:
            What the user should know about how the run goes on, "" if nothing.
        """
        root = context.root_dir
        if self.run is not None and self.run.is_taken():
            point = RunPoint(self.run.folder.name, self.run.run_id, self.written)
            self.run = branch_run(root, point, None, f"another process goes on with {point.name!r}")
        elif self.run is not None:
            return ""
        elif not context.is_training:
            self.run = start_run(root, self.run_name, suffix="-validate")
        elif self.resumed is not None:
            self.run = continue_run(root, self.resumed, self.run_name)
        else:
            self.run = start_run(root, self.run_name)
        self._spawned_folder.text = str(self.run.folder.absolute())
        return self.run.notice

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Write what is monitored, and how, beside the evaluations; `open` comes before."""
        assert self.run is not None
        self.run.prepare(dict(settings))

    def write(self, record: EpochRecord, key: EvaluationKey) -> EpochRecord:
        """Write an evaluation; `open` comes before.

        Returns:
            The record with what the writer adds to it.
        """
        assert self.run is not None
        record = self.run.write(self.writer, record, key)
        self.written = key
        return record

    def end(self, is_kept: bool) -> None:
        """Note the end of the run, if anything was written.

        Args:
            is_kept: Whether the last evaluation is of the weights that training left.
        """
        if self.run is not None:
            self.run.end(self.written if is_kept else None)
