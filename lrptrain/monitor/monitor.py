"""What a monitor does under any trainer: it plans, explains, judges and records.

A trainer's adapter says when: first `check_first_batch`, where an error costs nothing yet; then `add_batch`, until the
sample is drawn; then `evaluate`, as often as the trainer validates; and at the end `evaluate_kept`.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.batch import Sample, batch_length, take
from lrptrain.batch.call import model_output
from lrptrain.batch.forms import ignored_parts, overlooked_entries
from lrptrain.batch.logits import are_steps
from lrptrain.batch.task import ONE_LOGIT, SIGNS, STEPS, Head
from lrptrain.cues.followed import note_known
from lrptrain.findings.sentences import beside_guessing, counted
from lrptrain.loggers import EpochRecord
from lrptrain.monitor.annotated import survey
from lrptrain.monitor.budget import EvaluationSize
from lrptrain.monitor.config import MonitorConfig
from lrptrain.monitor.evaluation import Evaluation
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.explainer import Explainer, GatheredSamples
from lrptrain.monitor.judgement import NAMELESS
from lrptrain.monitor.judging import FindingError, Judging
from lrptrain.monitor.model_input import InputListener
from lrptrain.monitor.planner import Planner
from lrptrain.monitor.power import closing_words
from lrptrain.monitor.proving import examples_of
from lrptrain.monitor.recorder import Recorder
from lrptrain.monitor.run import EvaluationKey
from lrptrain.monitor.sample_reader import SampleReader
from lrptrain.monitor.skill import guessing
from lrptrain.monitor.summary import without_verdicts
from lrptrain.monitor.weights import fingerprint
from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.output.logit_view import one_logit_as
from lrptrain.relevance.shown.remarks import ZERO_LOGIT
from lrptrain.relevance.types import RelevanceWarning
from lrptrain.terminal import no_errors_of
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.discover import guided_by
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.naming import find_tokens, has_tokenizer

_ROUNDING = 0.01
"""Answers that differ by no more of the largest are the same: a choice, ten times what sums in another order differ by
in half precision."""


def _differ(one: Tensor, other: Tensor) -> bool:
    """Return whether answers differ by more than sums in another order do."""
    return one.shape != other.shape or bool((one - other).abs().max() > _ROUNDING * one.abs().max())


def _are_signs(label: Tensor | None) -> bool:
    """Return whether labels look like -1 and 1 of a hinge loss: both are there, and no 0."""
    return label is not None and bool((label == 1).any() & (label < 0).any() & (label != 0).all())


def first_logits(context: TrainingContext, batch: dict[str, Any]) -> Float[Tensor, "batch classes"] | None:
    """Return the logits of a batch; None where the model fails, which is told elsewhere."""
    with suppress(Exception), preserved(context.module), torch.no_grad(), one_logit_as(None):
        return model_output(context.model, batch)
    return None


MOVES = (
    "the model answers the same batch otherwise each time, in evaluation mode and with the same random numbers: it "
    "changes something that no module holds (a generator, a counter), which cannot be put back, so that training is "
    "not bit-identical with and without maps"
)
COUNTED = (
    "the validation data are shuffled, and batches have no sample_id: samples are named by their place in the first "
    "validation, such as pass-7"
)


class MonitorCore:
    """Evaluates a model on a fixed sample, finds and tests, and keeps the record of a run."""

    def __init__(self, config: MonitorConfig, inform: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self.config = config
        self.inform = inform
        self.warn = warn
        self.planner = Planner(config, inform)
        self.explainer = Explainer(config, inform, warn)
        self.judging = Judging(config, inform)
        self.recorder = Recorder(config, inform)
        self._stages = (self.recorder, self.judging, self.planner, self.explainer)
        self.reset()

    def reset(self) -> None:
        """Forget an earlier run."""
        self.failures = Failures(self.config.run.on_error, self.config.title)
        self.reader = SampleReader(self.config, self.warn)
        for stage in self._stages:
            stage.reset()
        self._guided_by: Sequence[str] = ()
        self._before_evaluation: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues: its folder, findings, last scalars and when they were computed.

        A checkpoint that is written amid an evaluation, as on a signal, holds what stood before it.
        """
        return dict(self._before_evaluation or self._state())

    def _state(self) -> dict[str, Any]:
        return {key: value for stage in self._stages for key, value in stage.state_dict().items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        for stage in self._stages:
            stage.load_state_dict(state_dict)

    def expect_nothing(self, reason: str) -> None:
        """Say that nothing will be evaluated, and why."""
        title, fail_on = self.config.title, self.config.judge.fail_on
        if fail_on is not None:
            raise ValueError(f"fail_on={fail_on!r} of {title} needs evaluations, but {reason}")
        self.warn(f"{title} will evaluate nothing: {reason}")

    @property
    def has_evaluated(self) -> bool:
        """Whether there was an evaluation, in this run or in the one that it continues from."""
        return f"{self.config.prefix}/samples" in self.recorder.scalars

    def watch(self, module: nn.Module) -> None:
        """Tell whoever trains a module that it is watched, and on which faults it relies so far."""
        note_known(module, self.judging.known())

    def start_draw(self, in_order: bool = True) -> None:
        """Draw the sample anew; where batches come in the order of the dataset, samples have its indices."""
        self.reader.in_order = in_order
        self.reader.start()
        self.explainer.inputs = None

    @contextmanager
    def guarded(self, activity: str) -> Iterator[None]:
        """Count the time inside as the monitor's, and a failure as one; `activity` goes into the warning."""
        with self.planner.timed(), self.failures.caught(activity), no_errors_of(RelevanceWarning):
            yield

    def check_first_batch(self, context: TrainingContext, batch: Any, contract_batch: dict[str, Any]) -> None:
        """Explain and draw a batch before training, where an error still costs nothing."""
        if not batch_length(contract_batch):
            return
        self._mention_unread(context, batch, contract_batch)
        rows = range(min(batch_length(contract_batch), self.config.run.batch_size))
        self._learn_language(context)
        taken = self.reader.marked([take(contract_batch, row, row) for row in rows])
        samples = [self.reader.annotated(each) for each in taken]
        if problem := survey(samples).without_content:
            raise ValueError(f"{self.config.title}: {problem}")
        with preserved(context.module), no_errors_of(RelevanceWarning), warnings.catch_warnings():
            # A head that begins with zeros, as torchvision's, has nothing to explain yet.
            warnings.filterwarnings("ignore", f".*{ZERO_LOGIT}", RelevanceWarning)
            evaluation = self._first_evaluation(context, samples, contract_batch)
            self.reader.limit_classes(max(evaluation.samples[0].num_logits, 1))
            self.reader.check_values(contract_batch)  # now that the classes are known
            self.explainer.decide_method(evaluation.samples)
            sources = context.names.sources
            record = self.recorder.build(evaluation, sources)
            self.recorder.draw(record, evaluation.samples[: min(1, self.config.show.max_pictures)], sources)
        self.watch(context.module)
        self.reader.start()

    def _learn_language(self, context: TrainingContext) -> None:
        """Note who knows how texts are made up."""
        self.reader.learn = partial(self.recorder.language, context.names.sources, context.model)

    def _first_evaluation(
        self, context: TrainingContext, samples: Sequence[Sample], batch: dict[str, Any]
    ) -> Evaluation:
        evaluator = self.explainer.evaluator(context, self.planner.size.class_maps)
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
        self.planner.foresee((time.monotonic() - started) / len(samples))
        return evaluation

    def _mention_unread(self, context: TrainingContext, batch: Any, contract_batch: dict[str, Any]) -> None:
        """Say once how a single logit is read, what is left out of a tuple, and that tokens have no names."""
        title = self.config.title
        if "input_ids" in contract_batch:  # whether the tokenizer works
            find_tokens(self.config.tokenizer, context.names.sources)(contract_batch["input_ids"][0].flatten().tolist())
        if "input_ids" in contract_batch and not has_tokenizer(self.config.tokenizer, context.names.sources):
            self.inform(
                f"{title} names tokens by their ids, and does not test kinds of words (numbers, punctuation, links, "
                "capitals): pass tokenizer="
            )
        again, logits = (first_logits(context, contract_batch) for _ in range(2))
        if logits is not None and again is not None and _differ(logits, again):
            self.warn(f"{title}: {MOVES}")
        logits = None if self.config.task is not None else logits
        if logits is not None and are_steps(logits):
            raise ValueError(f"{title}: {STEPS}")
        if logits is not None and logits.shape[1] == 1:
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
            told = ", ".join(f"{other!r} ({kind}) for {name!r}" for other, kind, name in overlooked)
            (other, _, name), *_ = overlooked
            is_one = isinstance(batch, Mapping) and other in batch
            line = f"=lambda batch: {{**batch, {name!r}: batch[{other!r}]}}" if is_one else "="
            way_out = (
                "label= of lrptrain.Head names it" if isinstance(task, Head) else f"batch_adapter{line} renames it"
            )
            self.warn(f"{title} does not read what may be meant: {told}; {way_out}")

    def add_batch(
        self, context: TrainingContext, batch: Any, set_length: float, listener: InputListener | None = None
    ) -> None:
        """Let the samples of a batch compete for the places; see `SampleReader.add`."""
        self.reader.add(context, batch, set_length, listener)
        if self.reader.counts_its_pass:
            self.recorder.mention([COUNTED])

    def evaluate(self, context: TrainingContext) -> EpochRecord | None:
        """Finish the sample and evaluate, if it is time; a failure in here is one in all processes.

        All processes must call it at the same time. Pictures and texts are in the record of the first process alone.
        """
        with self.guarded("evaluating"):
            self._learn_language(context)
            self.reader.finish(self.failures.note)
            if self.reader.is_wrong:  # a failure by now
                return None
            self.planner.fit_to(self.reader.sample.size)
            weights = self.planner.validation_of(context.model, context)
            moment = context.moment.epoch, context.moment.step
            if context.moment.is_training:
                # A checkpoint that is saved now has the weights that `evaluate_kept` may still evaluate.
                self.recorder.next_key = EvaluationKey.new(moment)
                if not self.planner.is_due(context.moment.epoch):
                    return None
            size = self.planner.plan(context)
            if size is None:
                return None
            record = self._evaluate(context, size, weights, EvaluationKey.new(moment))
            # What follows is another evaluation, behind this one in the record.
            self.recorder.next_key = EvaluationKey.new((context.moment.epoch, context.moment.step + 1))
            return record
        return None

    def evaluate_kept(self, context: TrainingContext, are_kept: bool = True) -> EpochRecord | None:
        """Evaluate the weights that training leaves, unless the last evaluation was just that.

        All processes must call it at the same time, at the end of training, with these weights in the model.
        `are_kept` is False where those could not be had.
        """
        record = self._evaluate_kept(context, are_kept)
        if record is None:
            return None
        # Where nothing was measured before, that was of the smallest sample: now of as many as are paid for.
        later = replace(context, moment=replace(context.moment, epoch=record.epoch, step=record.step + 1))
        return self._evaluate_kept(later, are_kept) or record

    def _evaluate_kept(self, context: TrainingContext, are_kept: bool) -> EpochRecord | None:
        if not self.reader.is_drawn or self.reader.is_wrong:
            return None
        with self.guarded("evaluating the checkpoint that is kept"):
            planner, next_key = self.planner, self.recorder.next_key
            planner.fit_to(self.reader.sample.size)
            weights = fingerprint(context.model)
            planner.weights.kept = weights if are_kept else None
            size = planner.plan_kept(weights)
            if size is None:
                return None
            # Steps may have followed the last validation.
            validated = planner.validated or (context.moment.epoch, context.moment.step)
            moment = max(validated[0], context.moment.epoch), max(validated[1], context.moment.step)
            key = next_key if next_key is not None and moment == validated else EvaluationKey.new(moment)
            epoch, step = key.moment
            last = replace(context, moment=replace(context.moment, epoch=epoch, step=step, share_done=1.0))
            self.judging.telling = 0  # of other weights or of more samples: it is not one more in a row
            with preserved(context.module):
                context.module.eval()  # training is over, but the module still trains
                return self._evaluate(last, size, weights, key)
        return None

    def _evaluate(
        self, context: TrainingContext, size: EvaluationSize, weights: str, key: EvaluationKey
    ) -> EpochRecord | None:
        """Evaluate as much as is planned: explain, judge and record; every process takes part."""
        started = time.monotonic()
        self.recorder.key = key
        # What is written of this moment has the weights of a checkpoint that is saved meanwhile.
        self._before_evaluation = self._state()
        try:
            with self.planner.evaluating(context, size, weights), preserved(context.module):
                explained = self.explainer.explain(context, self.reader.sample, size, self.failures)
                return None if explained is None else self._judge_and_record(context, started, *explained)
        finally:
            self._before_evaluation = self.recorder.key = None

    def _judge_and_record(
        self, context: TrainingContext, started: float, evaluator: Evaluator, gathered: GatheredSamples
    ) -> EpochRecord:
        inputs, mine = self.explainer.inputs or (None, [])
        evaluation = Evaluation(gathered.explained, inputs, context.moment.epoch, context.moment.step)
        recorder = self.recorder
        language = recorder.language(context.names.sources, context.model)
        names = recorder.names(evaluation, context.names.sources)
        judgement = self.judging.judge(evaluator, evaluation, mine, language, self._note_untested, names)
        if judgement.measures:  # else as in a first epoch, in which all answers are alike: no news
            # What nothing names was said at the start.
            self.recorder.mention([f"not tested: {line}" for line in judgement.untested if line != NAMELESS])
        guidance = self.config.meaning.in_guidance(context.names.guidance)
        told, before = self.judging.findings, self.judging.before
        record = recorder.build(evaluation, context.names.sources, judgement, told, guidance, before)
        # In all processes, for they may share the model.
        examples = examples_of(judgement) if judgement.measures else {}
        self.recorder.scored = gathered.explained
        self.planner.weights.evaluated = self.planner.weights.tried
        self._guided_by = guided_by(context.module)
        self.judging.update(judgement, record.findings, evaluation, record.class_names)
        self.watch(context.module)
        with self.failures.caught("computing maps of many classes"):
            record = replace(record, class_maps=evaluator.class_maps_of(gathered.displayed, record.class_names))
        record = self._with_scalars(context, record, started)
        if context.output.is_first_process:
            failures, left_out = self.failures, self.explainer.left_out
            with failures.caught("drawing"):
                record = recorder.draw(record, gathered.displayed, context.names.sources, evaluation)
                recorder.drawn = [*record.pictures, *record.texts]
            with failures.caught("drawing proofs"):
                record = recorder.prove(record, judgement, examples, context.names.sources)
                self.judging.findings = record.findings
            recorder.write(context, record, evaluation, {"method": self.explainer.method}, left_out, failures)
        return record

    def _with_scalars(self, context: TrainingContext, record: EpochRecord, started: float) -> EpochRecord:
        """Return a record with all scalars; what follows, drawing and writing, is part of the next point's cost."""
        power = self.judging.power(self.recorder.scored)
        is_silent = not power["tells"] and (
            power.get("collapsed") or not any(each.is_fault for each in record.findings)
        )
        values = without_verdicts(record.scalars) if is_silent else record.scalars
        values = values | self.planner.clock.costs(started)
        values |= {"relevance/failures": float(self.failures.count)}
        values |= {"relevance/left_out": float(len(self.explainer.left_out))}
        self.recorder.scalars = self.recorder.with_prefix(values)
        return replace(
            record,
            scalars=self.recorder.scalars,
            prefix=self.config.prefix,
            power=power,
            weights=self.planner.weights.moment or (None, None) if context.moment.is_training else None,
        )

    def _note_untested(self, failure: str) -> None:
        self.failures.note("testing", RuntimeError(failure))

    def count_failures(self) -> dict[str, float]:
        """Bring the number of failures in the scalars up to date, and return it by its key."""
        failures = {f"{self.config.prefix}/failures": float(self.failures.count)}
        self.recorder.scalars |= failures
        return failures

    def raise_if_misread(self) -> None:
        """Raise an error if the annotations of the sample could not be used."""
        if self.reader.misread:
            raise ValueError(self.reader.misread)

    def raise_if_failed(self, is_trained: bool = True) -> None:
        """Raise an error if the gate does not pass at the end: a finding is forbidden, or nobody could look."""
        scored, gate = self.recorder.scored, self.config.judge.fail_on
        if gate is None:
            return
        self.judging.raise_if_forbidden(at_end=True)
        if not self.has_evaluated:
            raise FindingError(
                f"fail_on={gate!r}: {self.config.title} evaluated nothing in this run, so that its gate cannot pass: "
                "no validation was completed (max_steps?), or all evaluations failed"
            )
        power = self.judging.power(scored) if scored else {}
        # Without a label, nobody knows whether a model guesses: a gate that forbids no doubt does not ask.
        has_labels = any(each.labels is not None for each in scored)
        asks = gate == "inconclusive" or has_labels or bool(self.judging.judgement.failed)
        untested = power.get("doubt", "") if asks else ""
        if not power.get("tells"):
            untested = power.get("text", "It was of an earlier process.")
        if is_trained and not self.planner.weights.judged_kept:
            untested = "It is not of the weights that training left, or the evaluation of those failed."
        if untested:
            raise FindingError(
                f"fail_on={gate!r}: the gate of {self.config.title} cannot pass after its last evaluation. {untested}"
            )

    def end(self) -> None:
        """Note the end of the run, and say how it ended."""
        self.planner.clock.stop()
        with self.failures.caught("writing files"):
            self.recorder.end(self.planner.weights.judged_kept)
        self._close(f"{self.config.title} ends", self.planner.subject)

    def end_validation(self) -> None:
        """Note the end of a validation by itself, and say what it has shown."""
        with self.failures.caught("writing files"):
            self.recorder.end(is_kept=True)
        self._close(self.config.title, "this validation")

    def _close(self, title: str, subject: str) -> None:
        scored, skill = self.recorder.scored, self.judging.skill
        if self.planner.evaluated_epoch is None or not scored:
            return
        accuracy = self.recorder.scalars.get(f"{self.config.prefix}/accuracy", math.nan)
        right = beside_guessing(accuracy, guessing(Evaluation(scored)))
        words = closing_words(
            title,
            ", ".join([subject, f"on {counted(len(scored), 'sample')}", *right]),
            self.judging.findings,
            self.judging.shown(scored),
            self.recorder.folder,
            skill.text if skill.collapsed else "",
            self._guided_by,
            self.planner.cost,
        )
        self.inform(words)
