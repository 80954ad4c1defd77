"""The fourth stage of a monitor: the record of an evaluation is made, drawn, written, sent to loggers and said."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import nn

from lrptrain.cues.search import Judged
from lrptrain.cues.text_form import text_form
from lrptrain.cues.texts import Language
from lrptrain.files import write_json
from lrptrain.findings import Finding, reliance
from lrptrain.findings.sentences import counted, sentences
from lrptrain.loggers import EpochRecord, RecordWriter, read_findings, send, send_scalars, what_is_sent
from lrptrain.loggers.local import PROOFS, evaluation_name
from lrptrain.loggers.metrics import key_names
from lrptrain.loggers.record import Highlight, Picture
from lrptrain.monitor import display, summary
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.monitor.explainer import LEFT_OUT
from lrptrain.monitor.judgement import Judgement
from lrptrain.monitor.power import inputs_among
from lrptrain.monitor.proving import Example, with_proofs
from lrptrain.monitor.reporting import findings_of, news_among
from lrptrain.monitor.run import EvaluationKey, MonitoredRun, RunPoint, branch_run, continue_run, start_run
from lrptrain.monitor.state import RunState, state
from lrptrain.relevance.sharding.shards import own_name
from lrptrain.trainers.context import Names, TrainingContext
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.hyperparameters import find_hyperparameters
from lrptrain.trainers.naming import NameSources, class_names_or_numbers, find_tokenizer, find_tokens
from lrptrain.trainers.processes import SharedText

UNTESTED = Judgement()
_announced: WeakKeyDictionary[nn.Module, tuple[Hashable, dict[Hashable, str]]] = WeakKeyDictionary()
"""By the user's module: its last evaluation, and which monitor has told each finding of it."""


class Recorder(RunState):
    """Keeps the record of a run.

    Attributes:
        class_names: None for those of the name sources.
        run: None before the first evaluation, and in all processes but the first.
        resumed: Where the checkpoint stands that the run continues; None if it is a new one.
        scored: The explained samples of the last evaluation, without inputs and annotations.
        key: The evaluation that is being made; None between evaluations.
        next_key: That of the weights as they are now, should training end here.
    """

    run: MonitoredRun | None = state(lambda _: None)
    resumed: RunPoint | None = state(lambda _: None)
    written: EvaluationKey | None = state(lambda _: None)
    scalars: dict[str, float] = state(lambda _: {}, "scalars", dict)
    scored: list[ExplainedSample] = state(lambda _: [])
    drawn: list[Picture | Highlight] = state(lambda _: [])
    key: EvaluationKey | None = state(lambda _: None)
    next_key: EvaluationKey | None = state(lambda _: None)
    _mentioned: set[str] = state(lambda _: set())

    def __init__(self, config: MonitorConfig, inform: Callable[[str], None]) -> None:
        super().__init__(config, inform)
        given = config.show.class_names
        self.class_names = config.meaning.class_names if given is None else given
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
        return {"run": None if point is None else asdict(point), **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; the folder is looked for when something is written."""
        super().load_state_dict(state)
        self.run = None
        self.resumed = RunPoint.from_dict(state["run"])
        self.written = None if self.resumed is None else self.resumed.last

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None before the first evaluation, and in all processes but the first."""
        if self.run is not None:
            return self.run.folder
        # Of processes that this one started, as by `strategy="ddp_spawn"`: it has seen nothing else of what they did.
        return Path(self._spawned_folder.text) if self._spawned_folder.text else None

    def findings_of_others(self) -> list[Finding]:
        """Return what processes have found that this one has started."""
        return read_findings(self.folder) if self.run is None and self.folder is not None else []

    def _open(self, context: TrainingContext) -> MonitoredRun:
        """Make or find the folder of the run, if that is not done, and say how the run continues."""
        root, name = context.output.root_dir, self._config.run.run_name
        if self.run is not None and self.run.is_taken():
            point = RunPoint(self.run.folder.name, self.run.run_id, self.written)
            self.run = branch_run(root, point, None, f"another process resumes {point.name!r}")
        elif self.run is not None:
            return self.run
        elif not context.moment.is_training:
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
        """Note the end of the run, if anything was written."""
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

    def language(self, sources: NameSources, model: nn.Module) -> Language:
        """Return how the texts of a model are made up."""
        tokenizer = find_tokenizer(self._config.tokenizer, sources)
        return Language(
            find_tokens(self._config.tokenizer, sources), text_form(tokenizer, model), tokenizer is not None
        )

    def build(
        self,
        evaluation: Evaluation,
        sources: NameSources,
        judgement: Judgement = UNTESTED,
        previous: Sequence[Finding] = (),
        guidance: str = Names.guidance,
        before: Sequence[Finding] | None = None,
    ) -> EpochRecord:
        """Return the record of an evaluation, without drawings."""
        names = self.names(evaluation, sources)
        tokens = find_tokens(self._config.tokenizer, sources)
        earlier = previous if before is None else before
        findings = findings_of(judgement.judged, evaluation, names, tokens, earlier, guidance)
        return EpochRecord(
            epoch=evaluation.epoch,
            step=evaluation.step,
            scalars=summary.scalars(evaluation.samples, names) | _reliances(judgement.judged, findings),
            samples=summary.table(evaluation.samples, names),
            findings=findings,
            new_findings=news_among(previous, findings),
            class_names=names,
            metrics=summary.logged_metrics(),
            all_scalars=self._config.run.all_scalars,
        )

    def draw(
        self,
        record: EpochRecord,
        displayed: Sequence[ExplainedSample],
        sources: NameSources,
        evaluation: Evaluation | None = None,
    ) -> EpochRecord:
        """Return the record with pictures or highlighted texts, and with the inputs of its samples."""
        options = self.options(record.class_names, sources)
        with_inputs = [(each.sample, each.grid) for each in displayed]  # first, in case the record's budget ends
        if displayed and evaluation is not None and evaluation.inputs is not None:
            grids = (each.grid for each in evaluation.samples)
            with_inputs += zip(evaluation.inputs, grids, strict=True)
        return replace(
            record,
            pictures=display.pictures(displayed, options),
            texts=display.highlights(displayed, options),
            inputs=display.inputs(with_inputs, options, any(each.are_rows for each in displayed)),
        )

    def prove(
        self,
        record: EpochRecord,
        judgement: Judgement,
        examples: dict[int, list[Example]],
        sources: NameSources,
    ) -> EpochRecord:
        """Return the record with the proofs of what is named."""
        if not judgement.measures:
            return record
        folder = f"{PROOFS}/{evaluation_name(record.epoch, record.step)}"
        options = self.options(record.class_names, sources)
        findings = with_proofs(record.findings, judgement, examples, options, folder)
        proven = {each.identity: each for each in findings}
        return replace(record, findings=findings, new_findings=[proven[each.identity] for each in record.new_findings])

    def options(self, class_names: Sequence[str], sources: NameSources) -> display.DisplayOptions:
        """Return how samples are drawn."""
        show, names = self._config.show, find_tokens(self._config.tokenizer, sources)
        return display.DisplayOptions(class_names, names, show.mean, show.std, show.channels)

    def names(self, evaluation: Evaluation, sources: NameSources) -> list[str]:
        """Return the names of the classes."""
        if not evaluation.samples:
            raise ValueError("the validation set gave no samples")
        names = class_names_or_numbers(self.class_names, sources, evaluation.samples[0].num_logits)
        # A number alone is no label that a person knows.
        return [f"label {name}" if evaluation.num_labels and name.isdecimal() else name for name in names]

    def write(
        self,
        context: TrainingContext,
        record: EpochRecord,
        evaluation: Evaluation,
        settings: Mapping[str, Any],
        left_out: Mapping[int | str, str],
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
            if left_out:
                write_json(run.folder / LEFT_OUT, {str(sample_id): problem for sample_id, problem in left_out.items()})
        self._announce(context, record, evaluation)
        for each in context.output.loggers:
            # Apart, so that a logger that fails on a picture has the numbers nevertheless.
            for send_part in (send_scalars, send):
                with failures.caught(f"logging to {type(each).__name__}"):
                    send_part(each, record)
            self.mention(what_is_sent(each, record))

    def _announce(self, context: TrainingContext, record: EpochRecord, evaluation: Evaluation) -> None:
        """Report what is new, the first of it in a sentence: the end of the run names all, and says what to do."""
        title = self._config.title
        findings, told_by_others = unannounced(context.module, evaluation, record.new_findings, title)
        if context.moment.share_done == 1:  # the end of the run reports these
            findings = []
        if findings:
            text, others = sentences(findings[0]), len(findings) - 1
            more = f" And {others} more." if others else ""
            self._inform(f"{title}: epoch {evaluation.epoch}: {text.verdict} {text.effect}{more}")
        for line in told_by_others:
            self._inform(line)

    def _settings(
        self, context: TrainingContext, class_names: Sequence[str], settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            **settings,
            "method_options": self._config.method_options,
            "module": own_name(context.module),
            "model": own_name(context.model),
            "task": self._config.meaning.description,
            "confidence": self._config.judge.confidence,
            "min_effect": self._config.judge.min_effect,
            "class_names": class_names,
            "hyperparameters": find_hyperparameters(context.names.hyperparameters),
            "metrics": [metric.to_dict() for metric in summary.logged_metrics()],
        }


def unannounced(
    module: nn.Module, evaluation: Evaluation, findings: Sequence[Finding], title: str
) -> tuple[list[Finding], list[str]]:
    """Return what no other monitor has reported of the same model and samples, and a line for each that has."""
    moment, announced = _announced.get(module, (None, {}))
    # Under other weights the same finding says something new.
    if moment != (evaluation.epoch, evaluation.step):
        announced = {}
    _announced[module] = ((evaluation.epoch, evaluation.step), announced)
    # To three decimals: other batches round the last digits otherwise.
    samples = tuple((each.sample.sample_id, np.round(each.probabilities, 3).tobytes()) for each in evaluation.samples)
    # By its own title a monitor does not silence itself: it may validate the same weights again.
    announcers = [announced.setdefault((samples, finding.identity, finding.verdict), title) for finding in findings]
    new = [finding for finding, announcer in zip(findings, announcers, strict=True) if announcer == title]
    others = [announcer for announcer in announcers if announcer != title]
    counts = {announcer: counted(others.count(announcer), "finding") for announcer in dict.fromkeys(others)}
    return new, [f"{title}: {findings} that {announcer} has told" for announcer, findings in counts.items()]


def _reliances(judged: Sequence[Judged], findings: Sequence[Finding]) -> dict[str, float]:
    """Return the scalars of what the model relies on; nan where nothing was tested."""
    faults = [each for each in judged if each.cue.role == "shortcut"]
    named = [each.effect.low for each in judged if each.named]
    inputs = inputs_among(judged)
    keys = key_names([cue.argument for cue, _ in inputs])
    return {
        **{f"relevance/input/{key}": effect.mean for key, (_, effect) in zip(keys, inputs, strict=True)},
        "relevance/reliance": reliance(findings) if faults else math.nan,
        "relevance/any_reliance": max([0.0, *named]) if judged else math.nan,
        "relevance/findings": float(sum(each.is_fault for each in findings)) if faults else math.nan,
    }
