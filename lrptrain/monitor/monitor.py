"""What a monitor does under any trainer: it checks, draws, explains, tests and writes down.

A trainer's adapter says when: first `check_first_batch`, where an error costs nothing yet; then `add_batch`, until the
sample is drawn; then `evaluate`, as often as the trainer validates; and at the end `evaluate_kept`.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lrptrain.batch import Sample, batch_length, take
from lrptrain.batch.call import model_output, rows_of
from lrptrain.batch.forms import ignored_parts, overlooked_entries
from lrptrain.batch.task import ONE_LOGIT, SIGNS, Head
from lrptrain.cues.cue import Cue
from lrptrain.cues.followed import Known, is_followed, note_known
from lrptrain.cues.kinds import restored
from lrptrain.cues.search import Judged
from lrptrain.findings import Finding, announce
from lrptrain.findings.sentences import counted, percent
from lrptrain.loggers import EpochRecord, RecordWriter, read_findings, send, send_scalars, what_is_sent
from lrptrain.loggers.metrics import current_key
from lrptrain.loggers.record import Highlight, Picture
from lrptrain.monitor.announced import unannounced
from lrptrain.monitor.budget import Extent
from lrptrain.monitor.class_maps import compute_class_maps
from lrptrain.monitor.clock import Clock
from lrptrain.monitor.closing import closing_words
from lrptrain.monitor.confidence import sharpness
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.gate import gravest_forbidden, raise_if_forbidden, raise_if_unjudged
from lrptrain.monitor.gathering import GatheredInputs, GatheredSamples, gather_explained, gather_inputs, ids_to_draw
from lrptrain.monitor.isolation import explain_usable
from lrptrain.monitor.judging import Judgement, judge_cues
from lrptrain.monitor.left_out import LeftOut
from lrptrain.monitor.model_input import InputListener
from lrptrain.monitor.power import Power, shown_by
from lrptrain.monitor.proving import examples_of
from lrptrain.monitor.record_builder import RecordBuilder
from lrptrain.monitor.run import EvaluationKey, RunPoint
from lrptrain.monitor.run_recorder import RunRecorder
from lrptrain.monitor.sample_reader import SampleReader
from lrptrain.monitor.skill import Skill
from lrptrain.monitor.summary import logged_metrics, without_verdicts
from lrptrain.monitor.weights import Moment, WeightsWatch, fingerprint
from lrptrain.relevance.default import DEFAULT_METHODS
from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.output.logit_view import one_logit_as
from lrptrain.relevance.sharding.shards import own_name
from lrptrain.relevance.shown.remarks import ZERO_LOGIT
from lrptrain.relevance.types import RelevanceWarning
from lrptrain.terminal import no_errors_of
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.failures import Failures, describe_error
from lrptrain.trainers.held_back import guiding, held_back
from lrptrain.trainers.hyperparameters import find_hyperparameters
from lrptrain.trainers.processes import gather
from lrptrain.trainers.progress import no_bar


def _plain(judged: Sequence[Judged], given: Sequence[Cue] | None) -> list[dict[str, Any]]:
    """Return what is named, and which samples judge it, as plain values; what the user gives is tested anyway."""
    proposed = [each for each in judged if each.named and each.cue not in (given or ())]
    return [{"cue": each.cue.to_dict(), "rows": each.rows.tolist()} for each in proposed]


def _are_signs(label: Tensor | None) -> bool:
    """Return whether labels look like -1 and 1 of a hinge loss: both are there, and no 0."""
    return label is not None and bool((label == 1).any() & (label < 0).any() & (label != 0).all())


def _has_one_logit(context: TrainingContext, batch: dict[str, Any]) -> bool:
    """Return whether the model returns one number per sample; False where it fails, which is told elsewhere."""
    first = rows_of(batch, slice(0, 1))
    with suppress(Exception), preserved(context.module), torch.no_grad(), one_logit_as(None):
        return model_output(context.model, first).shape[1] == 1
    return False


COUNTED = (
    "the validation data are shuffled, and batches have no sample_id: samples are named by their place in the first "
    "validation, such as pass-7"
)


class MonitorCore:
    """Evaluates a model on a fixed sample, finds and tests, and keeps the record of a run.

    Args:
        config: The options.
        inform: Says something to the user, in the first process.
        warn: Warns the user, in the first process.

    Attributes:
        config: The options.
        failures: The monitor's failures.
        clock: Counts the monitor's own time.
        reader: Reads batches and draws the sample.
        recorder: Writes to the folder of the run.
        scalars: The scalars of the last evaluation, and the number of failures.
        scored: The explained samples of the last evaluation, without inputs and annotations.
        drawn: Its pictures and highlighted texts, in the first process.
        evaluated_epoch: The epoch of the last evaluation, also of one that failed; None before it.
    """

    def __init__(self, config: MonitorConfig, inform: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self.config = config
        self.inform = inform
        self.warn = warn
        self._builder = RecordBuilder(
            class_names=config.meaning.class_names if config.show.class_names is None else config.show.class_names,
            tokenizer=config.tokenizer,
            mean=config.show.mean,
            std=config.show.std,
        )
        self.recorder = RunRecorder(RecordWriter(config.run.max_record_mb), config.run.run_name)
        self.reset()

    def reset(self) -> None:
        """Forget an earlier run."""
        self.recorder.reset()
        self.failures = Failures(self.config.run.on_error, self.config.title)
        self.clock = Clock()
        self.reader = SampleReader(self.config, self.warn)
        self.scalars: dict[str, float] = {}
        self.scored: list[ExplainedSample] = []
        self.drawn: list[Picture | Highlight] = []
        self.evaluated_epoch: int | None = None
        self._findings: list[Finding] = []
        self._judgement = Judgement()
        self._earlier: dict[str, Any] = {}
        self._skill = Skill()
        self._guided_by: Sequence[str] = ()
        self._method = self.config.method
        self._evaluations = 0
        self._left_out = LeftOut()
        self._doubts = False
        self._mentioned: set[str] = set()
        self._inputs: GatheredInputs | None = None
        self._evaluation_key: EvaluationKey | None = None
        self._before_evaluation: dict[str, Any] | None = None
        self._budget = self.config.new_budget()
        self._extent = self.config.extent
        self._weights = WeightsWatch()
        self._validated: Moment | None = None
        self._at_end: EvaluationKey | None = None

    def watch(self, module: nn.Module) -> None:
        """Tell whoever trains a module that it is watched, and on which faults it relies so far."""
        cues = tuple(each.cue for each in self._findings if each.is_fault and each.cue is not None)
        note_known(module, Known(cues, self._evaluations, self._skill.is_at_chance))

    def start_draw(self, in_order: bool = True) -> None:
        """Draw the sample anew, as the trainer may come with other data.

        Args:
            in_order: Whether batches come in the order of the dataset, so that samples have its indices.
        """
        self.reader.in_order = in_order
        self.reader.start()
        self._inputs = None

    @property
    def has_evaluated(self) -> bool:
        """Whether there was an evaluation, in this run or in the one that it goes on from."""
        return f"{self.config.prefix}/samples" in self.scalars

    @property
    def findings(self) -> list[Finding]:
        """The findings of the last evaluation: what the model reads, doubts about faults, and what it read before."""
        spawned = self.recorder.spawned_folder
        return read_findings(spawned) if spawned is not None and not self._findings else self._findings

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None before the first evaluation, and in all processes but the first."""
        return self.recorder.folder

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues: its folder, findings, last scalars and when they were computed.

        A checkpoint that is written amid an evaluation, as on a signal, holds what stood before it.
        """
        return dict(self._before_evaluation or self._state(self._at_end))

    def _state(self, pending: EvaluationKey | None = None) -> dict[str, Any]:
        point = self.recorder.point(pending)
        return {
            "run": None if point is None else point.to_dict(),
            "findings": [finding.to_dict() for finding in self._findings],
            "scalars": dict(self.scalars),
            "evaluated_epoch": self.evaluated_epoch,
            "evaluations": self._evaluations,
            "method": self._method,
            "budget": None if self._budget is None else self._budget.state_dict(),
            "elapsed": self.clock.elapsed,
            "doubts": self._doubts,
            "learned": self._skill.learned,
            "earlier": self._earlier,
            "weights": self._weights.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.recorder.resume(RunPoint.from_dict(state_dict["run"]))
        self._findings = [Finding.from_dict(values) for values in state_dict["findings"]]
        self.scalars = {current_key(key): value for key, value in state_dict["scalars"].items()}
        self.evaluated_epoch = state_dict["evaluated_epoch"]
        self._evaluations = state_dict.get("evaluations", 0)  # checkpoints of earlier versions do not count them
        # Checkpoints of earlier versions name none: their monitors were given one, which the state's key holds.
        self._method = state_dict.get("method", self.config.method)
        if self._budget is not None and state_dict.get("budget") is not None:
            self._budget.load_state_dict(state_dict["budget"])
            self._extent = self._budget.extent or self._extent
        self.clock.resume(state_dict.get("elapsed", 0.0))
        self._doubts = state_dict.get("doubts", False)
        self._skill.learned = state_dict.get("learned", False)
        self._earlier = state_dict.get("earlier", {})
        self._weights.load_state_dict(state_dict.get("weights", {}))

    def start_validation(self) -> None:
        """Forget the findings of earlier evaluations: a validation by itself is judged by itself.

        It may be of other weights, or of the same ones as the evaluation before: neither makes two in a row.
        """
        self._findings = []
        self._evaluations = 0

    def evaluate_in_every_validation(self, in_full: bool = False) -> None:
        """Evaluate every validation: something decides by its values. The budget then bounds the extent alone.

        Args:
            in_full: Whether it decides by the score of a class or group, for which the sample must be a full one.
        """
        if self._budget is not None:
            self._budget.in_every_validation = True
            self._budget.in_full = in_full

    @contextmanager
    def guarded(self, activity: str) -> Iterator[None]:
        """Count the time inside as the monitor's, and a failure as one; `activity` goes into the warning."""
        started = time.monotonic()
        try:
            with self.failures.caught(activity), self.clock.timed(), no_errors_of(RelevanceWarning):
                yield
        finally:
            if self._budget is not None:
                self._budget.spend(time.monotonic() - started)

    def check_first_batch(self, context: TrainingContext, batch: Any, contract_batch: dict[str, Any]) -> None:
        """Explain and draw a batch before training, where an error still costs nothing.

        Args:
            context: The model that is given it.
            batch: The batch as it comes.
            contract_batch: The same in the contract's form.

        Raises:
            Exception: What an evaluation would fail with.
        """
        self._mention_unread(context, batch, contract_batch)
        rows = range(min(batch_length(contract_batch), self.config.run.batch_size))
        self._learn_language(context)
        samples = [self.reader.annotated(take(contract_batch, row, row)) for row in rows]
        with preserved(context.module), no_errors_of(RelevanceWarning), warnings.catch_warnings():
            # A head that begins with zeros, as torchvision's, has nothing to explain yet.
            warnings.filterwarnings("ignore", f".*{ZERO_LOGIT}", RelevanceWarning)
            evaluation = self._first_evaluation(context, samples, contract_batch)
            self._decide_method(evaluation.samples)
            sources = context.name_sources
            record = self._builder.build(evaluation, sources)
            self._builder.draw(record, evaluation.samples[: min(1, self.config.show.max_pictures)], sources)
        self.watch(context.module)
        self.reader.limit_classes(max(evaluation.samples[0].num_logits, 1))
        self.reader.check_values(contract_batch)  # labels beyond the first rows, now that the classes are known
        self.reader.start()

    def _learn_language(self, context: TrainingContext) -> None:
        """Note how texts are made up, where annotations are made of them."""
        if self.config.annotate is not None and self.reader.language is None:
            self.reader.language = self._builder.language(context.name_sources, context.model)

    def _first_evaluation(
        self, context: TrainingContext, samples: Sequence[Sample], batch: dict[str, Any]
    ) -> Evaluation:
        evaluator = self._evaluator(context)
        started = time.monotonic()
        try:
            evaluation = Evaluation(evaluator.evaluate(samples))
        except ValueError:
            # Is it a label? How many classes there are, a sample without one tells.
            with suppress(Exception):
                unlabelled = evaluator.evaluate([replace(samples[0], label=-1)])
                self.reader.limit_classes(unlabelled[0].num_logits)
            self.reader.check_values(batch)
            raise
        if self._budget is not None:
            # Maps are about half of what a sample takes; tests are the rest.
            self._budget.seconds_per_sample = 2 * (time.monotonic() - started) / len(samples)
        return evaluation

    def _mention_unread(self, context: TrainingContext, batch: Any, contract_batch: dict[str, Any]) -> None:
        """Say once how a single logit is read, what is left out of a tuple, and that tokens have no names."""
        title = self.config.title
        if "input_ids" in contract_batch and not self._builder.names_tokens(context.name_sources):
            self.inform(
                f"{title} names tokens by their ids: tokenizer= says which tokenizer names them; without it, families "
                "of words (numbers, punctuation, links, capitals) are not tested"
            )
        if self.config.task is None and _has_one_logit(context, contract_batch):
            self.inform(f"{title}: {ONE_LOGIT}")
            if _are_signs(contract_batch.get("label")):
                self.warn(f"{title}: {SIGNS}")
        if self.config.batch_adapter is not None:
            return
        parts = ignored_parts(batch)
        if parts:
            self.inform(f"{title} reads (image or mapping, label, annotation) of a batch, and leaves out {parts}")
        task = self.config.meaning
        overlooked = overlooked_entries(batch, task.entry)
        if overlooked:
            way_out = "label= of lrptrain.Head names it" if isinstance(task, Head) else "batch_adapter= renames it"
            self.warn(f"{title} does not read what may be meant: {overlooked}; {way_out}")

    def add_batch(
        self, context: TrainingContext, batch: Any, set_length: float, listener: InputListener | None = None
    ) -> None:
        """Let the samples of a batch compete for the places; see `SampleReader.add`."""
        self.reader.add(context, batch, set_length, listener)
        if self.reader.counts_its_pass:
            self._mention([COUNTED])

    def evaluate(self, context: TrainingContext) -> EpochRecord | None:
        """Finish the sample and evaluate, if it is time; a failure in here is one in all processes.

        All processes must call it at the same time.

        Returns:
            The record, with pictures and texts in the first process; None if it is not time, or the evaluation failed.
        """
        with self.guarded("evaluating"):
            self._learn_language(context)
            self.reader.finish(self.failures.note)
            if self.reader.is_wrong:  # a failure by now
                return None
            self._fit_to_sample()
            weights = fingerprint(context.model)
            if context.is_training:
                self._validated = context.epoch, context.step
                self._weights.moments[weights] = self._validated
                # A checkpoint that is saved now has the weights that `evaluate_kept` may still evaluate.
                self._at_end = EvaluationKey.new(self._validated)
                if not self._is_due(context.epoch):
                    return None
            extent = self._planned(context)
            if extent is None:
                self._mention_wait()
                return None
            record = self._evaluate_extent(context, extent, weights, is_last=context.share_done == 1)
            # What follows is another evaluation, behind this one in the record.
            self._at_end = EvaluationKey.new((context.epoch, context.step + 1))
            return record
        return None

    def evaluate_kept(self, context: TrainingContext, are_kept: bool = True) -> EpochRecord | None:
        """Evaluate the weights that training leaves, with all samples, unless the last evaluation was just that.

        All processes must call it at the same time, at the end of training, with these weights in the model.

        Args:
            context: The model.
            are_kept: Whether these are the weights that are kept; False where those could not be had.

        Returns:
            As `evaluate`.
        """
        if not self.reader.is_drawn or self.reader.is_wrong:
            return None
        with self.guarded("evaluating the kept weights"):
            self._fit_to_sample()
            weights = fingerprint(context.model)
            self._weights.kept = weights if are_kept else None
            extent = self._in_full if self._budget is None else gather(self._budget.plan_kept(self.clock.elapsed))[0]
            if all(gather(self._weights.is_decided(weights, extent.samples))):
                return None
            # Steps may have followed the last validation.
            validated = self._validated or (context.epoch, context.step)
            moment = max(validated[0], context.epoch), max(validated[1], context.step)
            key = self._at_end if self._at_end is not None and moment == validated else EvaluationKey.new(moment)
            last = replace(context, epoch=key.moment[0], step=key.moment[1])
            self._evaluations = 0  # of other weights or of more samples: it is not one more in a row
            with preserved(context.module):
                context.module.eval()  # training is over, but the module still trains
                return self._evaluate_extent(last, extent, weights, key, is_last=True)
        return None

    @property
    def _in_full(self) -> Extent:
        """An evaluation in full: of all samples that were drawn."""
        return replace(self.config.extent, samples=max(min(self.config.max_samples, self.reader.sample.size), 1))

    def _fit_to_sample(self) -> None:
        """Plan with as many samples as there are, now that they are drawn."""
        if self._budget is not None:
            self._budget.most = self._in_full
        if self._extent == self.config.extent:
            self._extent = self._in_full

    def _evaluate_extent(
        self,
        context: TrainingContext,
        extent: Extent,
        weights: str,
        key: EvaluationKey | None = None,
        is_last: bool = False,
    ) -> EpochRecord | None:
        """Evaluate as much as is planned, and note what it took; under a key that checkpoints know already, or anew."""
        started = time.monotonic()
        if not is_last:
            self._mention_extent(context, extent)
        self._extent = extent
        self._evaluation_key = key or EvaluationKey.new((context.epoch, context.step))
        # What is written of this moment has the weights of a checkpoint that is saved meanwhile.
        self._before_evaluation = self._state(self._evaluation_key)
        # Noted before the work: an evaluation that fails is not repeated in every epoch that follows.
        self.evaluated_epoch = context.epoch
        self._weights.tried = weights, extent.samples
        try:
            with preserved(context.module):
                return self._evaluate(context, self.reader.sample.first(extent.samples))
        finally:
            self._before_evaluation = None
            if self._budget is not None and context.is_training:
                self._budget.note(extent, time.monotonic() - started)
                if not is_last:  # the end of the run says so
                    self._mention_cost(time.monotonic() - started)

    def _planned(self, context: TrainingContext) -> Extent | None:
        """Return how much is evaluated, as the first process plans it; None if nothing is."""
        if self._budget is None or not context.is_training:
            return self._in_full
        if is_followed(context.module):
            self.evaluate_in_every_validation()
        return gather(self._budget.plan(self.clock.elapsed, context.share_done, context.keeps_last))[0]

    def _mention_wait(self) -> None:
        """Say after the first validation why it was not evaluated."""
        if self._budget is not None and self._budget.validations == 1:
            self.inform(
                f"{self.config.title}: {self._budget.share:.0%} of this run's time would not pay for two "
                "evaluations: only the kept weights are evaluated, at the end (budget=None evaluates each validation)"
            )

    def _mention_extent(self, context: TrainingContext, extent: Extent) -> None:
        """Say how much is evaluated from now on, where it is not what it was."""
        if extent == self._extent or self._budget is None:  # without a budget it never changes
            return
        in_full = self._in_full.samples
        rest = f"; the kept weights get all {in_full}" if extent.samples < in_full else ""
        self.inform(
            f"{self.config.title}: from epoch {context.epoch} on {extent.samples} samples, {extent.drawn} of them with "
            f"pictures, and maps of {extent.class_maps or 'no further'} classes: as much as "
            f"{percent(self._budget.share)} of the training time allows (budget=None for all){rest}"
        )

    def _mention_cost(self, seconds: float) -> None:
        """Say so once where a single evaluation takes more than the budget."""
        assert self._budget is not None
        # The rest of this evaluation is added when it ends.
        share = (self._budget.spent + seconds) / max(self.clock.elapsed, 1e-9)
        if self._budget.evaluations == 1 and share > self._budget.share:
            rest = (
                "; each validation is evaluated, as something decides by the values"
                if self._budget.in_every_validation
                else "; the next ones wait until it is less"
            )
            self.inform(
                f"{self.config.title}: the first evaluation took {share:.0%} of the time so far, more than the budget "
                f"of {self._budget.share:.0%}{rest}"
            )

    def _is_due(self, epoch: int) -> bool:
        """Return whether `every_n_epochs` have passed; validations within an epoch that is due are all evaluated."""
        # Not due is what lies between: with every_n_epochs=3 and last=4, epochs 5 and 6. Epoch 4 again is another
        # validation within it, and an earlier epoch a new start.
        last = self.evaluated_epoch
        return last is None or not last < epoch < last + self.config.run.every_n_epochs

    def _evaluate(self, context: TrainingContext, samples: Sequence[Sample]) -> EpochRecord | None:
        """Explain the sample, find and test, and write the record; every process takes part."""
        started = time.monotonic()
        most_displayed = self._extent.drawn
        drawn = ids_to_draw(samples, most_displayed)
        try:
            evaluator = self._evaluator(context)
            progress = context.progress if self.config.run.progress_bar else no_bar
            local, problems = explain_usable(evaluator, samples, progress, drawn)
        except Exception as error:
            # The other processes wait for this one.
            left_out = self.reader.sample.left_out
            self._leave_out(gather_explained([], describe_error(error), most_displayed, left_out))
            self.failures.note("computing relevance", error)
            return None
        problems = {**self.reader.sample.left_out, **problems}
        gathered = gather_explained(local, "", most_displayed, problems)
        self._leave_out(gathered)
        if gathered.error:
            self.failures.note("computing relevance", RuntimeError(gathered.error))
            return None
        self._decide_method(gathered.explained)
        # Only maps and scores travel in every epoch; inputs do so once, as the sample stays the same.
        if self.config.cues is not None and not self._has_inputs_of(gathered.explained):
            self._inputs = gather_inputs(self.reader.sample.first(self._extent.samples))
        inputs = None if self._inputs is None else self._inputs.samples
        evaluation = Evaluation(gathered.explained, inputs, context.epoch, context.step)
        judgement = self._judge(context, evaluator, evaluation)
        record = self._builder.build(evaluation, context.name_sources, judgement, self._findings)
        # In all processes, for they may share the model.
        examples = {} if judgement.measure is None else examples_of(judgement.measure, judgement.judged)
        self.scored = gathered.explained
        self._findings = record.findings
        self._judgement = judgement
        self._evaluations += 1
        self._weights.evaluated = self._weights.tried
        why = held_back(context.module)
        self._guided_by = guiding(context.module)
        if self._skill.update(evaluation, record.class_names, self.config.judge.confidence, why):
            self.inform(f"{self.config.title}: {self._skill.text}")
        self.watch(context.module)
        with self.failures.caught("computing maps of many classes"):
            record = replace(record, class_maps=compute_class_maps(evaluator, gathered.displayed, record.class_names))
        power = self._power()
        values = record.scalars if power.get("tells", True) else without_verdicts(record.scalars)
        # What follows (drawing and writing) is part of the next point's cost: this one's is written with the record.
        self.scalars = self._with_prefix(values | self.clock.costs(started) | self._counts())
        record = replace(
            record,
            scalars=self.scalars,
            prefix=self.config.prefix,
            power=power,
            weights=self._weights.moment or (None, None) if context.is_training else None,
        )
        if context.is_first_process:
            with self.failures.caught("drawing"):
                record = self._builder.draw(record, gathered.displayed, context.name_sources, evaluation)
                self.drawn = [*record.pictures, *record.texts]
            with self.failures.caught("drawing proofs"):
                record = self._builder.prove(record, judgement, examples, context.name_sources)
                self._findings = record.findings
            self._write(context, record, evaluation)
        return record

    def _judge(self, context: TrainingContext, evaluator: Evaluator, evaluation: Evaluation) -> Judgement:
        """Test what may decide the answers; what fails is reported, and the others go on."""
        if evaluation.inputs is None or self._inputs is None:
            return Judgement()

        def note(failure: str) -> None:
            self.failures.note("testing", RuntimeError(failure))

        language = self._builder.language(context.name_sources, context.model)
        ids = [each.sample.sample_id for each in evaluation.samples]
        before = self._earlier.get("cues", ()) if self._earlier.get("sample") == ids else ()
        earlier = [(restored(each["cue"], lambda: language), np.array(each["rows"])) for each in before]
        power = self._sharpness(evaluation)
        mine = self._inputs.local_rows
        judgement = judge_cues(evaluator, evaluation, mine, self.config, language, power, earlier, note)
        self._earlier = {"sample": ids, "cues": _plain(judgement.judged, self.config.cues)}
        if judgement.measure is not None:  # else as in a first epoch, in which all answers are alike: no news
            self._mention([f"not tested: {line}" for line in judgement.untested])
        return judgement

    def _evaluator(self, context: TrainingContext) -> Evaluator:
        """Return what runs the model as it stands now, with the trainer's autocast."""
        explanation = replace(self.config.explanation, method=self._method, class_maps=self._extent.class_maps)
        return Evaluator(context.model, explanation, context.device, context.forward_context)

    def _decide_method(self, explained: Sequence[ExplainedSample]) -> None:
        """Keep to the method of the first maps, where none was named.

        Raises:
            RuntimeError: If several processes came to different ones.
        """
        names = sorted({each.method for each in explained})
        if len(names) > 1:
            raise RuntimeError(f"the processes explain by {' and '.join(names)}: name one with method=")
        if self._method is None and names:
            self._method = names[0]
            default = DEFAULT_METHODS[0]
            if self._method != default:
                self.inform(f"{self.config.title}: the maps are by {self._method}, for {default} cannot make any")

    def _leave_out(self, gathered: GatheredSamples) -> None:
        """Go on without the samples that could not be used, and name each of them once.

        Raises:
            ValueError: If no sample is left.
        """
        self.reader.sample.leave_out(gathered.left_out)
        line = self._left_out.add(gathered.left_out)
        if not gathered.explained and not gathered.error and self._left_out.problems:
            raise ValueError(f"no sample of the validation can be used. {line}")
        if line and self.config.run.on_error == "raise":
            raise ValueError(f"{self.config.title}: {line}")
        if line:
            self.warn(f"{self.config.title}: {line}")

    def _has_inputs_of(self, explained: Sequence[ExplainedSample]) -> bool:
        """Return whether the inputs at hand are those of these samples; it is the same in all processes."""
        ids = [each.sample.sample_id for each in explained]
        return self._inputs is not None and [sample.sample_id for sample in self._inputs.samples] == ids

    def _sharpness(self, evaluation: Evaluation) -> float:
        """Return what sharpens the probabilities of a model that is right more often than sure; say so once."""
        power = sharpness(evaluation.probabilities, evaluation.labels)
        if power > 1 and not self._doubts:
            self._doubts = True
            confidence = float(evaluation.probabilities.max(1).mean())
            self.inform(
                f"{self.config.title}: the model is right more often than it is sure (confidence {confidence:.2f} on "
                "average): effects are measured in probabilities that are sharpened to its accuracy"
            )
        return power

    def _counts(self) -> dict[str, float]:
        counts = {"failures": self.failures.count, "left_out": len(self._left_out.problems)}
        return {f"relevance/{name}": float(count) for name, count in counts.items()}

    def _with_prefix(self, scalars: dict[str, float]) -> dict[str, float]:
        return {key.replace("relevance", self.config.prefix, 1): value for key, value in scalars.items()}

    def count_failures(self) -> dict[str, float]:
        """Bring the number of failures in the scalars up to date, and return it by its key."""
        failures = {f"{self.config.prefix}/failures": float(self.failures.count)}
        self.scalars |= failures
        return failures

    def _write(self, context: TrainingContext, record: EpochRecord, evaluation: Evaluation) -> None:
        """Write to the folder, the terminal and the loggers; a failure of one does not keep the others from it."""
        with self.failures.caught("writing files"):
            notice = self.recorder.open(context)
            if notice:
                self.inform(f"{self.config.kind}: {notice}")
            with self.failures.caught("writing the settings of the run"):
                self.recorder.prepare(self._settings(context, record.class_names))
            assert self._evaluation_key is not None
            record = self.recorder.write(record, self._evaluation_key)
            if self.recorder.folder is not None:
                self._left_out.write(self.recorder.folder)
        findings, told_by_others = unannounced(context.module, evaluation, record.new_findings, self.config.title)
        for line in announce(findings, self.recorder.folder):
            self.inform(f"{self.config.title}: {line}" if self.config.run.name else line)
        for line in told_by_others:
            self.inform(line)
        for each in context.loggers:
            # Apart, so that a logger that fails on a picture has the numbers nevertheless.
            for send_part in (send_scalars, send):
                with self.failures.caught(f"logging to {type(each).__name__}"):
                    send_part(each, record)
            self._mention(what_is_sent(each, record))

    def _mention(self, lines: Sequence[str]) -> None:
        """Say lines to the user that were not said before."""
        for line in lines:
            if line not in self._mentioned:
                self._mentioned.add(line)
                self.inform(f"{self.config.title}: {line}")

    def _settings(self, context: TrainingContext, class_names: Sequence[str]) -> dict[str, Any]:
        """Return what is monitored, and how."""
        return {
            "method": self._method,
            "method_options": dict(self.config.show.method_options or {}),
            "module": own_name(context.module),
            "model": own_name(context.model),
            "task": self.config.meaning.description,
            "confidence": self.config.judge.confidence,
            "min_effect": self.config.judge.min_effect,
            "class_names": class_names,
            "hyperparameters": find_hyperparameters(context.hyperparameter_sources),
            "metrics": [metric.to_dict() for metric in logged_metrics()],
        }

    def is_forbidden(self, at_end: bool = False) -> bool:
        """Return whether a finding stands that ends training.

        Args:
            at_end: Whether no evaluation will follow: then those that there were have to do.
        """
        return gravest_forbidden(self._findings, self.config.judge.fail_on, self._required(at_end)) is not None

    def _required(self, at_end: bool) -> int:
        """Return in how many evaluations in a row a finding has to stand."""
        return min(self.config.judge.fail_after, max(self._evaluations, 1)) if at_end else self.config.judge.fail_after

    def raise_if_misread(self) -> None:
        """Raise an error if the annotations of the sample could not be used.

        Raises:
            ValueError: With what is wrong with them.
        """
        if self.reader.misread:
            raise ValueError(self.reader.misread)

    def raise_if_unjudged(self) -> None:
        """Raise an error if a gate would pass because nobody looked.

        Raises:
            FindingError: If there is a gate, and was no evaluation.
        """
        raise_if_unjudged(self.has_evaluated, self.config.judge.fail_on, self.config.title)

    def raise_if_forbidden(self, at_end: bool = False) -> None:
        """Raise an error for the gravest finding that ends training.

        Args:
            at_end: As for `is_forbidden`.

        Raises:
            FindingError: If there is one.
        """
        raise_if_forbidden(self._findings, self.config.judge.fail_on, self._required(at_end))

    def end(self) -> None:
        """Note the end of the run, and say how it ended."""
        self.clock.stop()
        with self.failures.caught("writing files"):
            self.recorder.end(self._weights.evaluated_kept)
        if self.evaluated_epoch is not None and self.scored:
            self.inform(self._closing(f"{self.config.title} ends", self._subject()))

    def end_validation(self) -> None:
        """Say what a validation by itself has shown."""
        if self.evaluated_epoch is not None and self.scored:
            self.inform(self._closing(self.config.title, "this validation"))

    def _power(self) -> dict[str, Any]:
        """Return what was tested, where no fault is found, or that the model has collapsed; else nothing."""
        if self._skill.collapsed:
            return {"tells": False, "text": self._skill.text, "collapsed": True}
        if any(finding.is_fault for finding in self._findings):
            return {}
        return self._shown()._asdict()

    def _shown(self) -> Power:
        judgement = self._judgement
        return shown_by(
            self.scored, judgement.judged, judgement.untested, self.config.judge.confidence, self._skill.text
        )

    def _subject(self) -> str:
        """Return what the last evaluation was of, in words."""
        moment = self._weights.moment
        epoch = "" if moment is None else f"epoch {moment[0]}"
        if not self._weights.evaluated_kept:
            return f"{epoch or 'weights'} that {'was' if epoch else 'were'} not kept"
        return epoch if moment == self._validated and epoch else f"the kept weights{f' ({epoch})' if epoch else ''}"

    def _cost(self) -> str:
        """Return what the monitor took, where that is more than its budget; else ""."""
        if self._budget is None or self._budget.share_of(self.clock.elapsed) <= self._budget.share:
            return ""
        share = percent(self._budget.share_of(self.clock.elapsed))
        return f"The monitor took {share} of the time, more than the budget of {percent(self._budget.share)}."

    def _closing(self, title: str, subject: str) -> str:
        collapse = self._skill.text if self._skill.collapsed else ""
        return closing_words(
            title,
            f"{subject}, on {counted(len(self.scored), 'sample')}",
            self._findings,
            self._shown(),
            self.recorder.folder,
            collapse,
            self._guided_by,
            self._cost(),
        )
