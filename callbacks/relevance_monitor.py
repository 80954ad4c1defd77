"""Where does the model look? Relevance maps, scores and findings on a fixed validation sample, in every epoch."""

import logging
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from lrptrain.batch import BatchAdapter, Sample, batch_length, read_batch, take
from lrptrain.batch.checks import Limits, unusable, vocabulary_size
from lrptrain.batch.forms import ignored_parts
from lrptrain.batch.png_masks import PngMasks
from lrptrain.batch.task import ONE_LOGIT, Task, TaskName, find_task
from lrptrain.callbacks.base import rank_zero_info, rank_zero_warn
from lrptrain.callbacks.model_callback import ModelCallback
from lrptrain.extras import require
from lrptrain.findings import Candidate, Effect, Evaluation, ExplainedSample, Finding, announce
from lrptrain.intervention import InterventionConfig
from lrptrain.intervention.effects import model_output
from lrptrain.loggers import EpochRecord, RecordWriter, read_findings, send, send_scalars
from lrptrain.loggers.metrics import current_key
from lrptrain.monitor.annotated import merged, survey, without_annotations
from lrptrain.monitor.arguments import check_choices, check_names, check_verdicts
from lrptrain.monitor.class_maps import compute_class_maps
from lrptrain.monitor.clock import Clock
from lrptrain.monitor.evaluator import TARGETS, Evaluator, ExplanationConfig
from lrptrain.monitor.gate import gravest_forbidden, raise_if_forbidden, raise_if_unjudged
from lrptrain.monitor.gathering import GatheredInputs, GatheredSamples, gather_explained, gather_inputs, ids_to_draw
from lrptrain.monitor.intervene import intervene
from lrptrain.monitor.isolation import explain_usable
from lrptrain.monitor.left_out import LeftOut
from lrptrain.monitor.model_input import InputListener, check_bytes, check_model_input
from lrptrain.monitor.record_builder import RecordBuilder
from lrptrain.monitor.run import EvaluationKey, MonitoredRun, RunPoint, branch_run, continue_run, start_run
from lrptrain.monitor.stratified_sample import ValidationSample
from lrptrain.monitor.summary import logged_metrics
from lrptrain.relevance.default import DEFAULT_METHODS, check_method
from lrptrain.relevance.logit_view import one_logit_as
from lrptrain.relevance.preserve import preserved
from lrptrain.trainers.checks import check_counts, check_normalisation
from lrptrain.trainers.failures import Failures, describe_error
from lrptrain.trainers.lightning import log_scalars, logged_step, undivided_length, watchers
from lrptrain.trainers.naming import NameSources, name_sources
from lrptrain.trainers.processes import SharedText, gather

if TYPE_CHECKING:
    import pytorch_lightning as pl

logger = logging.getLogger(__name__)


class RelevanceMonitor(ModelCallback):
    """Computes relevance maps on a fixed, class-stratified sample of the validation set and flags a wrong focus.

    Attach it to any LightningModule whose forward gives logits; nothing of the model or the module is edited, and
    training is bit-identical with and without it. Batches are dicts (or tuples) with `image` or `pixel_values`, or
    `input_ids` and `attention_mask`; `label`; and, to be scored, a `mask` `[B, H, W]`, `boxes` `[B, K, 4]` or a
    `rationale` `[B, T]` (1 evidence, 0 not, 255 ignored). The first validation draws the sample as its
    batches pass by.

    Logged (`<target>` is `label` or `predicted`; shares and accuracies in 0..1):
        `relevance/<target>/energy_pointing_game`: Share of the positive relevance on the annotation; of each class
            as `energy_pointing_game_per_class/<class>`.
        `relevance/<target>/pointing_game`, `/rank_accuracy`, `/auprc`: The other localisation scores.
        `relevance/<target>/region/<name>`: Share of the positive relevance in a named region.
        `relevance/mixing/block_<number>`: Mean share of a token's state behind a block's attention that comes from
            other tokens (Kobayashi et al. 2021); only with `mixing_ratios`.
        `relevance/chance`: Annotated share of the area, the energy pointing game of a uniform map.
        `relevance/accuracy`, `relevance/samples`: Of the sample.
        `relevance/accuracy_per_group/<g>`, `relevance/worst_group_accuracy`: Of the sample's groups and the least of
            them, where batches have `group`.
        `relevance/findings`, `relevance/findings_confirmed`: Number of findings that stand, and are confirmed.
        `relevance/severity`: Of the gravest finding, in 0..1; see `Finding.severity`.
        `relevance/reliance`, `relevance/reliance_control`: How far the prediction moves, in -1..1, when what lies
            outside the annotation is changed, and under the control.
        `relevance/seconds`: Time the monitor took since its last point: for this evaluation, and for writing the last.
        `relevance/cost_share`: Its share of the time since then, or since training began; in 0..1.
        `relevance/failures`: Times the monitor failed so far.
        `relevance/left_out`: Number of samples that could not be used (pixels that are not finite, a label that is no
            class, a mask with other values, another size ...); a warning names them once, `left_out.json` all of them.
        `relevance/record_mb`: Size of the run's folder before the evaluation, in megabytes; loggers only.
    Pictures, texts, tables and findings go to every logger, as far as it takes them (see `lrptrain.loggers`), and to
    `<default_root_dir>/relevance/<run>/`: `run.json`, `events.jsonl`, `findings.json`, `samples/*.parquet`,
    `pictures/`, `highlights/`, `class_maps/*.parquet`, `inputs/` (the samples themselves, once).

    Args:
        max_samples: The size of the sample, in all processes together. A class needs about 8 annotated samples to be
            flagged among ten; with fewer, only all classes together can be.
        every_n_epochs: Evaluate in the first validation, then when this many epochs have passed.
        method: One of `lrptrain.methods()`. By default that of `lrptrain.attribute`: the sanity check, or else the
            first evaluation, decides what serves the model, and the run keeps to it, also when it is resumed.
        method_options: The options of the method.
        model: The attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the names above.
        task: What output and labels mean, where they do not say so: "binary" (one logit, soft labels) or a
            `lrptrain.Regression(mean, std)`; None for classes, of which one logit tells two apart.
        class_names: The name of each class, in the order of the logits; None for the `class_names` of the datamodule or
            the module, or else numbers.
        region_names: The names of the regions of a `mask` `[B, K, H, W]`; the first is the evidence.
        bound: A finding is a mean share of relevance on the annotation that lies surely below this: a share in (0, 1),
            or "chance", the annotated area.
        confidence: The level of intervals and findings, in (0, 1).
        intervention: What tests a finding in the epoch in which it arises: "swap" what lies outside the annotation with
            another class's and, as the control, its own class's; "inpaint" or "fill" it; None leaves findings
            suspected. Fixed positions are painted over, tokens deleted. It costs 2 forward passes per region.
        min_effect: The least mean change of a probability, beyond the control's, that confirms a finding; 0.3 for what
            no map shows.
        fail_on: "confirmed" or "suspected": end training after an epoch with such a finding, with an error.
        targets: The classes to explain: some of "label" and "predicted".
        batch_size: The number of samples per forward pass of the monitor, which needs the memory of training.
        max_pictures: The number of pictures or texts drawn per epoch; with 0, no inputs are kept, either.
        class_maps: The number of classes, the most probable and those of `targets`, for which the drawn samples have
            maps on the dashboard; 0 for those of `targets` alone. Each class costs a backward pass of these samples.
        max_record_mb: The size of the run's folder, in megabytes, beyond which no pictures are added.
        mean: The mean of each channel, to undo the normalisation of images in pictures.
        std: The standard deviation of each channel, to undo the normalisation of images in pictures.
        tokenizer: The tokenizer that names tokens, its name or its folder; None for that of the datamodule or module.
        dataloader_idx: The index of the validation dataloader.
        on_error: "warn": a failure after the start is reported once, counted, and training goes on; "raise": it ends
            training.
        run_name: The folder under `relevance/`, numbered if it exists; None for the time. A resumed run continues in
            its own folder.
        seed: The seed of the sample and of the interventions.
        mixing_ratios: Whether to log per block what share of a token's state comes from other tokens.
        progress_bar: Whether to show a progress bar while the monitor works.
        name: A name that tells several monitors apart: their keys are `relevance/<name>/...`.

    Attributes:
        findings: The findings of the last evaluation, those that were refuted included.
        failures: The number of the monitor's failures.
        folder: The folder of the run; None before the first evaluation, and in all processes but the first.
        scored: The explained samples of the last evaluation, without inputs and annotations.

    Raises:
        ValueError: At construction, when training is set up or in the sanity check, with what to change.
        FindingError: When training has ended because of `fail_on`.
    """

    def __init__(
        self,
        max_samples: int = 128,
        every_n_epochs: int = 1,
        method: str | None = None,
        method_options: dict[str, Any] | None = None,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
        task: TaskName | Task | None = None,
        class_names: Sequence[str] | None = None,
        region_names: Sequence[str] = (),
        bound: float | Literal["chance"] = "chance",
        confidence: float = 0.95,
        intervention: Literal["swap", "inpaint", "fill"] | None = "swap",
        min_effect: float = 0.05,
        fail_on: Literal["suspected", "confirmed"] | None = None,
        targets: Sequence[str] = TARGETS,
        batch_size: int = 16,
        max_pictures: int = 16,
        class_maps: int = 5,
        max_record_mb: float = 200.0,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        tokenizer: Any = None,
        dataloader_idx: int = 0,
        on_error: Literal["warn", "raise"] = "warn",
        run_name: str | None = None,
        seed: int = 0,
        mixing_ratios: bool = False,
        progress_bar: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__()
        check_method(method, method_options or {})
        check_counts(max_samples=max_samples, every_n_epochs=every_n_epochs, batch_size=batch_size)
        check_counts(0, max_pictures=max_pictures, class_maps=class_maps)
        check_choices(bound, confidence, targets, on_error)
        check_verdicts(intervention, min_effect, fail_on)
        check_normalisation(mean, std)
        self.max_samples = max_samples
        self.every_n_epochs = every_n_epochs
        self.model = model
        self.batch_adapter = batch_adapter
        self.task = task
        self.fail_on = fail_on
        self.max_pictures = max_pictures
        self.dataloader_idx = dataloader_idx
        self.on_error = on_error
        self.run_name = run_name
        self.seed = seed
        self.progress_bar = progress_bar
        self.name = name
        self.explanation = ExplanationConfig(
            method=method,
            options=dict(method_options or {}),
            targets=tuple(targets),
            batch_size=batch_size,
            region_names=tuple(region_names),
            mixing_ratios=mixing_ratios,
            class_maps=class_maps,
        )
        self.intervention_config = (
            InterventionConfig(intervention, batch_size, seed=seed) if intervention is not None else None
        )
        self._builder = RecordBuilder(
            bound=bound,
            confidence=confidence,
            class_names=find_task(task).class_names if class_names is None else class_names,
            tokenizer=tokenizer,
            mean=mean,
            std=std,
            min_effect=min_effect,
            region_names=region_names,
        )
        self._writer = RecordWriter(max_record_mb)
        self._attached_to: tuple[int, str] | None = None
        self._spawned_folder = SharedText()
        self._reset()

    def _reset(self) -> None:
        """Forget an earlier run."""
        self._findings: list[Finding] = []
        self.scored: list[ExplainedSample] = []
        self._run: MonitoredRun | None = None
        self._spawned_folder.text = ""
        self._written: EvaluationKey | None = None
        self._evaluation_key: EvaluationKey | None = None
        self._before_evaluation: dict[str, Any] | None = None
        self._failures = Failures(self.on_error, self.title)
        self._clock = Clock()
        self._limits = Limits()
        self._left_out = LeftOut()
        self._listener: InputListener | None = None
        self._wrong_input = False
        self._png_masks = PngMasks()
        self._misread = ""
        self._sample = ValidationSample(self.max_samples, self.seed, self._limits)
        self._inputs: GatheredInputs | None = None
        self._scalars: dict[str, float] = {}
        self._evaluated_epoch: int | None = None
        self._resumed: RunPoint | None = None
        self._method = self.explanation.method
        self._finished = False
        self._failures_before = 0

    @property
    def failures(self) -> int:
        """The number of the monitor's failures."""
        return self._failures.count

    @property
    def _has_evaluated(self) -> bool:
        return f"{self.prefix}/samples" in self._scalars

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None before the first evaluation, and in all processes but the first."""
        if self._run is not None:
            return self._run.folder
        # After `strategy="ddp_spawn"`, the process that called `fit` has seen nothing of what the others did.
        spawned = self._spawned_folder.text
        return Path(spawned) if spawned else None

    @property
    def findings(self) -> list[Finding]:
        """The findings of the last evaluation, those that were refuted included."""
        spawned = self._spawned_folder.text
        return read_findings(Path(spawned)) if self._run is None and spawned and not self._findings else self._findings

    @property
    def state_key(self) -> str:
        """The key in checkpoints: monitors of other names, methods, models or dataloaders keep their own state."""
        return self._generate_state_key(
            name=self.name, method=self.explanation.method, model=self.model, dataloader_idx=self.dataloader_idx
        )

    @property
    def title(self) -> str:
        """What lines for the user begin with."""
        return f"RelevanceMonitor {self.name!r}" if self.name else "RelevanceMonitor"

    @property
    def prefix(self) -> str:
        """The prefix of every logged key."""
        return f"relevance/{self.name}" if self.name else "relevance"

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues: its folder, findings, last scalars and when they were computed.

        A checkpoint that is written amid an evaluation, as on a signal, holds what stood before it.
        """
        return dict(self._before_evaluation or self._state())

    def _state(self, pending: EvaluationKey | None = None) -> dict[str, Any]:
        point = self._resumed
        if self._run is not None:
            point = RunPoint(self._run.folder.name, self._run.run_id, self._written, pending)
        return {
            "run": None if point is None else point.to_dict(),
            "findings": [finding.to_dict() for finding in self._findings],
            "scalars": dict(self._scalars),
            "evaluated_epoch": self._evaluated_epoch,
            "method": self._method,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        # The folder is opened when something is written; `_open_run` finds it by its name.
        self._run = None
        self._findings = [Finding.from_dict(values) for values in state_dict["findings"]]
        self._resumed = RunPoint.from_dict(state_dict["run"])
        self._written = None if self._resumed is None else self._resumed.last
        self._scalars = {current_key(key): value for key, value in state_dict["scalars"].items()}
        self._evaluated_epoch = state_dict["evaluated_epoch"]
        # Checkpoints of earlier versions name none: their monitors were given one, which the state's key holds.
        self._method = state_dict.get("method", self.explanation.method)

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject what cannot work, before anything is lost."""
        if stage not in ("fit", "validate"):
            return
        super().setup(trainer, pl_module, stage)
        require("pyarrow", "monitor")
        check_names([callback.name for callback in trainer.callbacks if isinstance(callback, RelevanceMonitor)])  # type: ignore[attr-defined]
        # Every process logs the same values: no synchronisation, which could wait for a process that failed.
        warnings.filterwarnings("ignore", r"It is recommended to use `self.log\('relevance/")
        if self._attached_to != (id(trainer), stage):  # a resumed run keeps what its checkpoint said
            self._attached_to = (id(trainer), stage)
            self._reset()
        # Drawn anew in any case: the trainer may come with other data.
        self._sample = ValidationSample(self.max_samples, self.seed, self._limits)
        self._inputs = None
        if stage == "fit":
            self._check_validation(trainer)

    def _check_validation(self, trainer: "pl.Trainer") -> None:
        """Say where the monitor will have nothing to do, or its values are old.

        Raises:
            ValueError: If a gate was asked for that nothing could close.
        """
        if not trainer.enable_validation:
            reason = "this trainer runs no validation (no dataloader, no validation_step, or limit_val_batches=0)"
            if self.fail_on is not None:
                raise ValueError(f"fail_on={self.fail_on!r} of {self.title} needs evaluations, but {reason}")
            rank_zero_warn(f"{self.title} will evaluate nothing: {reason}")
        stale = watchers(trainer, f"{self.prefix}/")
        if self.every_n_epochs > 1 and stale:
            rank_zero_info(
                f"{' and '.join(stale)} will see each value of {self.title} in {self.every_n_epochs} epochs, as it is "
                f"computed every {self.every_n_epochs} epochs: count patience and saved checkpoints accordingly, or "
                "evaluate in every epoch"
            )

    def on_train_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Start the clock."""
        self._clock.start(restart=True)

    def on_sanity_check_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Reject masks that are surely misread: no batch of the sanity check had one that says otherwise."""
        if self._png_masks.problem:
            raise ValueError(self._png_masks.problem)

    def on_validation_epoch_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Begin a validation."""
        self._finished = False
        self._failures_before = self.failures
        self._clock.start()

    def on_validation_batch_start(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Listen to what the first validation step gives the model."""
        first = trainer.sanity_checking or self._sample.samples is None
        if first and batch_idx == 0 and dataloader_idx == self.dataloader_idx and self._model is not None:
            self._listener = InputListener(self._model, batch)

    def on_exception(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", exception: BaseException) -> None:
        """Listen no longer."""
        self._heard()

    def on_validation_batch_end(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw the sample; evaluate after the last batch, before callbacks that swap weights swap them back."""
        if dataloader_idx != self.dataloader_idx:
            return
        # The sanity check runs over the first batches before training: they would be drawn twice, and its numbers would
        # be those of an untrained model. But an error costs nothing yet, so that everything is tried once, and raises.
        listener = self._heard()
        if trainer.sanity_checking or (trainer.state.fn == "validate" and batch_idx == 0):
            self._check_batch(pl_module, batch, listener)
        if trainer.sanity_checking:
            if batch_idx == 0:
                self._mention_unread(batch, name_sources(trainer, pl_module))
                self._evaluate_sanity_batch(trainer, pl_module, batch)
            return
        if self._sample.samples is None:
            with self._failures.caught("drawing the sample"), self._clock.timed():
                contract_batch = self._read(batch)
                self._sample.add_batch(contract_batch, undivided_length(trainer, dataloader_idx))
                self._wrong_input |= listener is not None  # until it is checked
                self._check_input(pl_module, contract_batch, listener)
                self._wrong_input &= listener is None
        # Not in `on_validation_epoch_end`: there a callback that averages weights may have taken its weights out again,
        # if it comes earlier in the trainer's list, and the maps would be those of other weights than the validation's.
        if batch_idx + 1 == trainer.num_val_batches[dataloader_idx]:
            self._finish_validation(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Show the scalars to checkpoints and early stopping, also those of the last evaluation; loggers have them."""
        if trainer.sanity_checking:
            return
        if not self._finished:  # an iterable dataset, whose last batch was not known as such
            self._finish_validation(trainer, pl_module)
        # Every process logs, for each decides for itself whether to checkpoint or to stop. The values are the same in
        # all, so that nothing is synchronised here; see `setup`.
        failures = {f"{self.prefix}/failures": float(self.failures)}
        self._scalars |= failures
        for key, value in self._scalars.items():
            pl_module.log(key, value, logger=False)  # Lightning would log old values again, and ends if this changes
        # A failure after the scalars were sent, such as that of a logger, would only appear with the next evaluation.
        if self.failures > self._failures_before and trainer.is_global_zero:
            for each in trainer.loggers:
                try:
                    log_scalars(each, failures, trainer)
                except Exception:  # this logger may be what failed
                    logger.debug("the number of failures could not be logged", exc_info=True)

    def on_validation_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Stop training if a finding demands it: after this epoch, so that its checkpoints are written."""
        if trainer.state.fn == "validate":
            if self._misread:
                raise ValueError(self._misread)
            raise_if_unjudged(self._has_evaluated, self.fail_on, self.title)
        if trainer.sanity_checking or gravest_forbidden(self._findings, self.fail_on) is None:
            return
        # No error yet in `fit`: callbacks that come later, such as checkpoints, would miss this epoch. `on_fit_end`
        # raises it.
        trainer.should_stop = True
        if trainer.state.fn == "validate":
            raise_if_forbidden(self._findings, self.fail_on)

    def on_fit_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Note the end of the run, and raise an error if a finding ended training, or none was looked for."""
        if self._run is not None:
            with self._failures.caught("writing files"):
                self._run.end()
        if not self._has_evaluated and not self.failures and trainer.enable_validation:
            rank_zero_warn(f"{self.title} evaluated nothing in this run: no validation was completed (max_steps?)")
        raise_if_unjudged(self._has_evaluated, self.fail_on, self.title)
        raise_if_forbidden(self._findings, self.fail_on)

    def _find_model(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        # Validations start in every epoch; the model is looked up, and its name is told to the user, once.
        if self._model is not None:
            return
        super()._find_model(trainer, pl_module)
        if self._model is not pl_module:
            rank_zero_info(f"{self.title} explains {type(self._model).__name__} of {type(pl_module).__name__}")

    def _evaluator(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> Evaluator:
        """Return what runs the model as it stands now, with the trainer's autocast."""
        assert self._model is not None
        context = trainer.precision_plugin.val_step_context
        config = replace(self.explanation, method=self._method, task=find_task(self.task, self._model))
        return Evaluator(self._model, config, pl_module.device, context)

    def _decide_method(self, explained: Sequence[ExplainedSample]) -> None:
        """Keep to the method of the first maps, where none was named.

        Raises:
            RuntimeError: If several processes came to different ones.
        """
        names = sorted({each.method for each in explained})
        if len(names) > 1:
            raise RuntimeError(f"the processes explain by {' and '.join(names)}: name one with method=")
        if self._method is None and names:
            (self._method,) = names
            if self._method != DEFAULT_METHODS[0]:
                rank_zero_info(
                    f"{self.title}: the maps are by {self._method}, for {DEFAULT_METHODS[0]} cannot make any"
                )

    def _read(self, batch: Any) -> dict[str, Any]:
        """Return a batch in the contract's form."""
        return read_batch(batch, self.batch_adapter, find_task(self.task, self._model))

    def _heard(self) -> InputListener | None:
        """Listen no longer; return what listened since `on_validation_batch_start`."""
        listener = self._listener
        self._listener = None
        if listener is not None:
            listener.stop()
        return listener

    def _check_batch(self, pl_module: "pl.LightningModule", batch: Any, listener: InputListener | None) -> None:
        """Reject a batch that cannot be used, while an error costs nothing.

        Raises:
            ValueError: With the sample's id, if it is one, what is wrong and how it is mended.
        """
        contract_batch = self._read(batch)
        self._png_masks.add(contract_batch)
        if self._model is not None:
            self._limits = replace(self._limits, vocabulary=vocabulary_size(self._model))
        self._check_input(pl_module, contract_batch, listener)
        self._check_values(contract_batch)

    def _mention_unread(self, batch: Any, sources: NameSources) -> None:
        """Say once what is left out of a tuple, and that tokens have no names."""
        if "input_ids" in self._read(batch) and not self._builder.names_tokens(sources):
            rank_zero_info(f"{self.title} names tokens by their ids: tokenizer= says which tokenizer names them")
        if self.task is None and self._has_one_logit(self._read(batch)):
            rank_zero_info(f"{self.title}: {ONE_LOGIT}")
        parts = ignored_parts(batch) if self.batch_adapter is None else ""
        if parts:
            rank_zero_info(
                f"{self.title} reads (image or mapping, label, annotation) of a batch, and leaves out {parts}"
            )

    def _has_one_logit(self, batch: dict[str, Any]) -> bool:
        """Return whether the model returns one number per sample; False where it fails, which is told elsewhere."""
        first = {name: column[:1] for name, column in batch.items()}
        assert self._model is not None
        with suppress(Exception), preserved(self._model), torch.no_grad(), one_logit_as(None):
            return model_output(self._model, first).shape[1] == 1
        return False

    def _check_values(self, batch: dict[str, Any]) -> None:
        """Reject a batch with values that no sample can have; the error names the first sample with some."""
        for row, problem in unusable(batch, self._limits).items():
            name = f"the sample {batch['sample_id'][row]}" if "sample_id" in batch else f"sample {row} of its batch"
            raise ValueError(f"{self.title} cannot use {name}: {problem}")

    def _check_input(
        self, pl_module: "pl.LightningModule", batch: dict[str, Any], listener: InputListener | None
    ) -> None:
        """Reject a batch that is not what the validation step gave the model."""
        if listener is None or self._model is None:
            return
        check_model_input(listener, batch, "validation_step")
        with preserved(pl_module):
            check_bytes(self._model, batch, listener.heard, "validation_step")

    def _evaluate_sanity_batch(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", batch: Any) -> None:
        """Explain and draw a batch in the sanity check, where an error still costs nothing."""
        contract_batch = self._read(batch)
        rows = range(min(batch_length(contract_batch), self.explanation.batch_size))
        samples = [take(contract_batch, row, row) for row in rows]
        sources = name_sources(trainer, pl_module)
        with preserved(pl_module):
            evaluator = self._evaluator(trainer, pl_module)
            try:
                evaluation = Evaluation(evaluator.evaluate(samples))
            except ValueError:
                # Is it a label? How many classes there are, a sample without one tells.
                with suppress(Exception):
                    unlabelled = evaluator.evaluate([replace(samples[0], label=-1)])
                    self._limits = replace(self._limits, classes=unlabelled[0].num_logits)
                self._check_values(contract_batch)
                raise
            self._decide_method(evaluation.samples)
            record = self._builder.build(evaluation, sources, self._builder.candidates(evaluation, sources))
            self._builder.draw(record, evaluation.samples[: min(1, self.max_pictures)], sources)
        self._limits = replace(self._limits, classes=max(evaluation.samples[0].num_logits, 1))
        self._check_values(contract_batch)  # labels beyond the first rows, now that the classes are known
        self._sample = ValidationSample(self.max_samples, self.seed, self._limits)

    def _finish_validation(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Finish the sample and evaluate, if it is time; a failure in here is one in all processes."""
        self._finished = True
        with self._failures.caught("evaluating"), self._clock.timed():
            samples = self._drawn_samples()
            if self._wrong_input:  # a failure by now
                return
            if trainer.state.fn == "fit" and not self._is_due(trainer.current_epoch):
                return
            self._evaluation_key = EvaluationKey.new((trainer.current_epoch, logged_step(trainer)))
            # What is written of this moment has the weights of a checkpoint that is saved meanwhile.
            self._before_evaluation = self._state(self._evaluation_key)
            # Noted before the work: an evaluation that fails is not repeated in every epoch that follows.
            self._evaluated_epoch = trainer.current_epoch
            try:
                with preserved(pl_module):
                    self._evaluate(trainer, pl_module, samples)
            finally:
                self._before_evaluation = None

    def _drawn_samples(self) -> list[Sample]:
        """Return what this process has of the sample; after the draw, look at its annotations as a whole."""
        if self._sample.samples is not None:
            return self._sample.samples
        samples = self._sample.finish()
        self._wrong_input = any(gather(self._wrong_input))
        ids = [sample_id for part in gather([sample.sample_id for sample in samples]) for sample_id in part]
        if len(set(ids)) < len(ids):
            rank_zero_warn(
                f"{self.title}: {len(ids)} samples have {len(set(ids))} different ids: `sample_id` must tell samples "
                "of the whole validation set apart, or be left out of the batch"
            )
        annotations = merged(gather(survey(samples)))
        self._misread = annotations.misread
        if annotations.misread:
            self._sample.samples = without_annotations(samples)
            self._failures.note("reading the masks", ValueError(f"{annotations.misread}. The annotations are not used"))
        elif annotations.remark:
            rank_zero_warn(f"{self.title}: {annotations.remark}")
        return self._sample.samples or []

    def _is_due(self, epoch: int) -> bool:
        """Return whether `every_n_epochs` have passed; validations within an epoch that is due are all evaluated."""
        # Not due is what lies between: with every_n_epochs=3 and last=4, epochs 5 and 6. Epoch 4 again is another
        # validation within it, and an earlier epoch a new start.
        last = self._evaluated_epoch
        return last is None or not last < epoch < last + self.every_n_epochs

    def _evaluate(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", samples: Sequence[Sample]) -> None:
        """Explain the sample, find and test, and write the record; every process takes part."""
        started = time.monotonic()
        drawn = ids_to_draw(samples, self.max_pictures)
        try:
            evaluator = self._evaluator(trainer, pl_module)
            local, problems = explain_usable(evaluator, samples, self._shows_progress(trainer), drawn)
        except Exception as error:
            # The other processes wait for this one.
            self._leave_out(gather_explained([], describe_error(error), self.max_pictures, self._sample.left_out))
            self._failures.note("computing relevance", error)
            return
        problems = {**self._sample.left_out, **problems}
        gathered = gather_explained(local, "", self.max_pictures, problems)
        self._leave_out(gathered)
        if gathered.error:
            self._failures.note("computing relevance", RuntimeError(gathered.error))
            return
        self._decide_method(gathered.explained)
        # Only maps and scores travel in every epoch; inputs do so once, as the sample stays the same.
        if self.intervention_config is not None and not self._has_inputs_of(gathered.explained):
            self._inputs = gather_inputs(self._sample.samples or [])
        evaluation = Evaluation(
            gathered.explained,
            inputs=None if self._inputs is None else self._inputs.samples,
            epoch=trainer.current_epoch,
            step=logged_step(trainer),
        )
        sources = name_sources(trainer, pl_module)
        # All processes hold the same samples from here on, and come to the same candidates: they share the
        # interventions.
        candidates = self._builder.candidates(evaluation, sources)
        effects = self._intervene(evaluator, evaluation, candidates)
        record = self._builder.build(evaluation, sources, candidates, effects, self._findings)
        self.scored = gathered.explained
        self._findings = record.findings
        with self._failures.caught("computing maps of many classes"):
            record = replace(record, class_maps=compute_class_maps(evaluator, gathered.displayed, record.class_names))
        # What follows (drawing and writing) is part of the next point's cost: this one's is written with the record.
        counts = {"failures": self.failures, "left_out": len(self._left_out.problems)}
        costs = self._clock.costs(started) | {f"relevance/{name}": float(count) for name, count in counts.items()}
        self._scalars = self._with_prefix(record.scalars | costs)
        if trainer.is_global_zero:
            record = replace(record, scalars=self._scalars, prefix=self.prefix)
            with self._failures.caught("drawing"):
                record = self._builder.draw(record, gathered.displayed, sources, evaluation)
            self._write(trainer, pl_module, record)

    def _leave_out(self, gathered: GatheredSamples) -> None:
        """Go on without the samples that could not be used, and name each of them once.

        Raises:
            ValueError: If no sample is left.
        """
        self._sample.leave_out(gathered.left_out)
        line = self._left_out.add(gathered.left_out)
        if not gathered.explained and not gathered.error and self._left_out.problems:
            raise ValueError(f"no sample of the validation can be used. {line}")
        if line and self.on_error == "raise":
            raise ValueError(f"{self.title}: {line}")
        if line:
            rank_zero_warn(f"{self.title}: {line}")

    def _has_inputs_of(self, explained: Sequence[ExplainedSample]) -> bool:
        """Return whether the inputs at hand are those of these samples; it is the same in all processes."""
        ids = [each.sample.sample_id for each in explained]
        return self._inputs is not None and [sample.sample_id for sample in self._inputs.samples] == ids

    def _shows_progress(self, trainer: "pl.Trainer") -> bool:
        return self.progress_bar and trainer.is_global_zero and trainer.progress_bar_callback is not None

    def _intervene(
        self, evaluator: Evaluator, evaluation: Evaluation, candidates: Sequence[Candidate]
    ) -> list[Effect | str] | None:
        """Test the candidates; None if no intervention was asked for."""
        if self.intervention_config is None or self._inputs is None:
            return None

        def note(failure: str) -> None:
            self._failures.note("intervening", RuntimeError(failure))

        return intervene(evaluator, self._inputs, evaluation.samples, candidates, self.intervention_config, note)

    def _with_prefix(self, scalars: dict[str, float]) -> dict[str, float]:
        return {key.replace("relevance", self.prefix, 1): value for key, value in scalars.items()}

    def _write(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", record: EpochRecord) -> None:
        """Write to the folder, the terminal and the loggers; a failure of one does not keep the others from it."""
        with self._failures.caught("writing files"):
            run = self._open_run(trainer)
            with self._failures.caught("writing the settings of the run"):
                run.prepare(self._settings(pl_module, record.class_names))
            assert self._evaluation_key is not None
            record = run.write(self._writer, record, self._evaluation_key)
            self._written = self._evaluation_key
            self._left_out.write(run.folder)
        for line in announce(record.new_findings):
            rank_zero_info(f"{self.title}: {line}" if self.name else line)
        for each in trainer.loggers:
            # Apart, so that a logger that fails on a picture has the numbers nevertheless.
            for send_part in (send_scalars, send):
                with self._failures.caught(f"logging to {type(each).__name__}"):
                    send_part(each, record)

    def _open_run(self, trainer: "pl.Trainer") -> MonitoredRun:
        """Return the run, whose folder is made or found when the first evaluation is written."""
        root = trainer.default_root_dir
        if self._run is not None and self._run.is_taken():
            point = RunPoint(self._run.folder.name, self._run.run_id, self._written)
            self._run = branch_run(root, point, None, f"another process goes on with {point.name!r}")
        elif self._run is not None:
            return self._run
        elif trainer.state.fn != "fit":
            self._run = start_run(root, self.run_name, suffix="-validate")
        elif self._resumed is not None:
            self._run = continue_run(root, self._resumed, self.run_name)
        else:
            self._run = start_run(root, self.run_name)
        self._spawned_folder.text = str(self._run.folder.absolute())
        if self._run.notice:
            rank_zero_info(f"RelevanceMonitor: {self._run.notice}")
        return self._run

    def _settings(self, pl_module: "pl.LightningModule", class_names: Sequence[str]) -> dict[str, Any]:
        """Return what is monitored, and how."""
        return {
            "method": self._method,
            "method_options": self.explanation.options,
            "module": type(pl_module).__name__,
            "model": type(self._model).__name__,
            "bound": self._builder.bound,
            "confidence": self._builder.confidence,
            "class_names": class_names,
            "metrics": [metric.to_dict() for metric in logged_metrics()],
        }
