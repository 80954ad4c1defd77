"""The fourth stage of a monitor: an evaluation is drawn, written to the run's folder, sent to loggers and said."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lrptrain.findings import Finding, announce
from lrptrain.loggers import EpochRecord, RecordWriter, read_findings, send, send_scalars, what_is_sent
from lrptrain.loggers.metrics import current_key
from lrptrain.loggers.record import Highlight, Picture
from lrptrain.monitor.announced import unannounced
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.monitor.left_out import LeftOut
from lrptrain.monitor.record_builder import RecordBuilder
from lrptrain.monitor.run import EvaluationKey, MonitoredRun, RunPoint, branch_run, continue_run, start_run
from lrptrain.monitor.state import RunState, state
from lrptrain.monitor.summary import logged_metrics
from lrptrain.relevance.sharding.shards import own_name
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.hyperparameters import find_hyperparameters
from lrptrain.trainers.processes import SharedText


def _as_they_are_called(_: Any, __: Any, plain: Mapping[str, float]) -> dict[str, float]:
    return {current_key(key): value for key, value in plain.items()}


class Recorder(RunState):
    """Keeps the record of a run.

    Args:
        config: The options.
        inform: Says something to the user, in the first process.

    Attributes:
        builder: Makes the record of an evaluation.
        run: The run; None before the first evaluation, and in all processes but the first.
        resumed: Where the checkpoint stands that the run goes on from; None if it is a new one.
        written: The last evaluation that was written.
        scalars: The scalars of the last evaluation, and the number of failures.
        scored: The explained samples of the last evaluation, without inputs and annotations.
        drawn: Its pictures and highlighted texts, in the first process.
        key: The evaluation that is being made; None between evaluations.
        next_key: That of the weights as they are now, should training end here.
    """

    run: MonitoredRun | None = state(lambda _: None)
    resumed: RunPoint | None = state(lambda _: None)
    written: EvaluationKey | None = state(lambda _: None)
    scalars: dict[str, float] = state(lambda _: {}, "scalars", dict, _as_they_are_called)
    scored: list[ExplainedSample] = state(lambda _: [])
    drawn: list[Picture | Highlight] = state(lambda _: [])
    key: EvaluationKey | None = state(lambda _: None)
    next_key: EvaluationKey | None = state(lambda _: None)
    _mentioned: set[str] = state(lambda _: set())

    def __init__(self, config: MonitorConfig, inform: Callable[[str], None]) -> None:
        self._config = config
        self._inform = inform
        show = config.show
        names = config.meaning.class_names if show.class_names is None else show.class_names
        self.builder = RecordBuilder(names, config.tokenizer, show.mean, show.std)
        self._writer = RecordWriter(config.run.max_record_mb)
        # Kept by `reset`: processes that are started share it.
        self._spawned_folder = SharedText()

    def reset(self) -> None:
        """Forget an earlier run."""
        super().reset()
        self._spawned_folder.text = ""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues, its folder first."""
        point = self.resumed
        if self.run is not None:
            point = RunPoint(self.run.folder.name, self.run.run_id, self.written, self.key or self.next_key)
        return {"run": None if point is None else point.to_dict(), **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; the folder is looked for when something is written."""
        self.run = None
        self.resumed = RunPoint.from_dict(state["run"])
        self.written = None if self.resumed is None else self.resumed.last
        super().load_state_dict(state)

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None before the first evaluation, and in all processes but the first."""
        return self._spawned if self.run is None else self.run.folder

    @property
    def _spawned(self) -> Path | None:
        """The folder in which processes wrote that this one started, as by `strategy="ddp_spawn"`; None without any."""
        # The process that called `fit` has seen nothing else of what the others did.
        text = self._spawned_folder.text
        return Path(text) if self.run is None and text else None

    def findings_of_others(self) -> list[Finding]:
        """Return what processes have found that this one has started."""
        return [] if self._spawned is None else read_findings(self._spawned)

    def _open(self, context: TrainingContext) -> MonitoredRun:
        """Make or find the folder of the run, if that is not done, and say how the run goes on."""
        root, name = context.root_dir, self._config.run.run_name
        if self.run is not None and self.run.is_taken():
            point = RunPoint(self.run.folder.name, self.run.run_id, self.written)
            self.run = branch_run(root, point, None, f"another process goes on with {point.name!r}")
        elif self.run is not None:
            return self.run
        elif not context.is_training:
            self.run = start_run(root, name, suffix="-validate")
        elif self.resumed is not None:
            self.run = continue_run(root, self.resumed, name)
        else:
            self.run = start_run(root, name)
        self._spawned_folder.text = str(self.run.folder.absolute())
        if self.run.notice:
            self._inform(f"{self._config.kind}: {self.run.notice}")
        return self.run

    def end(self, is_kept: bool) -> None:
        """Note the end of the run, if anything was written.

        Args:
            is_kept: Whether the last evaluation is of the weights that training left.
        """
        if self.run is not None:
            self.run.end(self.written if is_kept else None)

    def with_prefix(self, scalars: Mapping[str, float]) -> dict[str, float]:
        """Return scalars by the keys of this monitor."""
        return {key.replace("relevance", self._config.prefix, 1): value for key, value in scalars.items()}

    def mention(self, lines: Sequence[str]) -> None:
        """Say lines to the user that were not said before."""
        for line in lines:
            if line not in self._mentioned:
                self._mentioned.add(line)
                self._inform(f"{self._config.title}: {line}")

    def draw(
        self,
        context: TrainingContext,
        record: EpochRecord,
        displayed: Sequence[ExplainedSample],
        evaluation: Evaluation,
        failures: Failures,
    ) -> EpochRecord:
        """Return a record with its drawings; without them if they fail."""
        with failures.caught("drawing"):
            record = self.builder.draw(record, displayed, context.name_sources, evaluation)
            self.drawn = [*record.pictures, *record.texts]
        return record

    def write(
        self,
        context: TrainingContext,
        record: EpochRecord,
        evaluation: Evaluation,
        settings: Mapping[str, Any],
        left_out: LeftOut,
        failures: Failures,
    ) -> None:
        """Write to the folder, the terminal and the loggers; a failure of one does not keep the others from it."""
        with failures.caught("writing files"):
            run = self._open(context)
            with failures.caught("writing the settings of the run"):
                run.prepare(self._settings(context, record.class_names, settings))
            assert self.key is not None
            record = run.write(self._writer, record, self.key)
            self.written = self.key
            left_out.write(run.folder)
        self._announce(context, record, evaluation)
        for each in context.loggers:
            # Apart, so that a logger that fails on a picture has the numbers nevertheless.
            for send_part in (send_scalars, send):
                with failures.caught(f"logging to {type(each).__name__}"):
                    send_part(each, record)
            self.mention(what_is_sent(each, record))

    def _announce(self, context: TrainingContext, record: EpochRecord, evaluation: Evaluation) -> None:
        title = self._config.title
        findings, told_by_others = unannounced(context.module, evaluation, record.new_findings, title)
        for line in announce(findings, self.folder):
            self._inform(f"{title}: {line}" if self._config.run.name else line)
        for line in told_by_others:
            self._inform(line)

    def _settings(
        self, context: TrainingContext, class_names: Sequence[str], settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return what is monitored, and how."""
        return {
            **settings,
            "method_options": dict(self._config.show.method_options or {}),
            "module": own_name(context.module),
            "model": own_name(context.model),
            "task": self._config.meaning.description,
            "confidence": self._config.judge.confidence,
            "min_effect": self._config.judge.min_effect,
            "class_names": class_names,
            "hyperparameters": find_hyperparameters(context.hyperparameter_sources),
            "metrics": [metric.to_dict() for metric in logged_metrics()],
        }

    def count(self, failures: Failures, left_out: LeftOut) -> dict[str, float]:
        """Return what went wrong so far, in numbers."""
        counts = {"failures": failures.count, "left_out": len(left_out.problems)}
        return {f"relevance/{name}": float(count) for name, count in counts.items()}
