"""Where does the model look? Relevance maps, scores and findings on a fixed validation sample, in every epoch."""

import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from lrptrain.batch import BatchAdapter, Sample, batch_length, read_batch, take
from lrptrain.batch.annotations import check_mask_values
from lrptrain.callbacks.model_callback import ModelCallback
from lrptrain.extras import require
from lrptrain.findings import Effect, Finding, announce
from lrptrain.intervention import InterventionConfig
from lrptrain.loggers import ClassMap, EpochRecord, RecordWriter, send, send_scalars
from lrptrain.monitor.arguments import check_choices, check_judging, check_names
from lrptrain.monitor.class_maps import class_maps
from lrptrain.monitor.clock import Clock
from lrptrain.monitor.evaluate import TARGETS, Explainer, Scored, evaluate_all
from lrptrain.monitor.gate import forbidden, refuse
from lrptrain.monitor.intervene import Holding, intervene
from lrptrain.monitor.report import Reporter, settings
from lrptrain.monitor.sampling import Draw
from lrptrain.monitor.sharing import share_samples, share_scored
from lrptrain.monitor.suspects import Suspect
from lrptrain.relevance.preserve import preserved
from lrptrain.relevance.registry import get_method
from lrptrain.trainers.checks import check_counts, check_looks
from lrptrain.trainers.discover import find_owners
from lrptrain.trainers.failures import Failures, described
from lrptrain.trainers.lightning import log_scalars, logged_step, undivided_length
from lrptrain.trainers.run_folder import run_folder, write_settings


class RelevanceMonitor(ModelCallback):
    """Computes relevance maps on a fixed, class-stratified sample of the validation set and flags a wrong focus.

    Attach it to any LightningModule whose forward gives logits; nothing of the model or the module is edited, and
    training is bit-identical with and without it. Batches are dicts (or tuples) with `image` or `pixel_values`, or
    `input_ids` and `attention_mask`; `label`; and, to be scored, a `mask` `[B, H, W]`, `boxes` `[B, K, 4]` or a
    `rationale` `[B, T]` (1 evidence, 0 not, 255 ignored). The first validation draws the sample as its
    batches pass by.

    Logged (`<target>` is `label` or `predicted`; shares and accuracies in 0..1):
        `relevance/<target>/energy_pointing_game`: Share of the positive relevance on the annotation; per class with
            `/<class>` behind it.
        `relevance/<target>/pointing_game`, `/rank_accuracy`, `/auprc`: The other localisation scores.
        `relevance/<target>/region/<name>`: Share of the positive relevance in a named region.
        `relevance/mixing/block_<number>`: Mean share of a token's state behind a block's attention that comes from
            other tokens (Kobayashi et al. 2021); only with `mixing_ratios`.
        `relevance/chance`: Annotated share of the area, the energy pointing game of a uniform map.
        `relevance/accuracy`, `relevance/samples`: Of the sample.
        `relevance/accuracy/group_<g>`, `relevance/worst_group_accuracy`: Of the sample's groups and the least of them,
            where batches have `group`.
        `relevance/findings`, `relevance/findings/confirmed`: Number of findings that stand, and are confirmed.
        `relevance/severity`: Of the gravest finding, in 0..1; see `Finding.severity`.
        `relevance/reliance`, `relevance/reliance/control`: How far the prediction moves, in -1..1, when what lies
            outside the annotation is changed, and under the control.
        `relevance/seconds`: Time the monitor took since its last point: for this evaluation, and for writing the last.
        `relevance/cost_share`: Its share of the time since then, or since training began; in 0..1.
        `relevance/failures`: Times the monitor failed so far.
        `relevance/record_mb`: Size of the run's folder before the evaluation, in megabytes; loggers only.
    Pictures, texts, tables and findings go to every logger, as far as it takes them (see `lrptrain.loggers`), and to
    `<default_root_dir>/relevance/<run>/`: `run.json`, `events.jsonl`, `findings.json`, `samples/*.parquet`,
    `pictures/`, `highlights/`, `class_maps/*.parquet`, `inputs/` (the samples themselves, once).

    Args:
        max_samples: Size of the sample, in all processes together. A class needs about 8 annotated samples to be
            flagged among ten; with fewer, only all classes together can be.
        every_n_epochs: Evaluate in the first validation, then when this many epochs have passed.
        method: One of `lrptrain.methods()`.
        method_options: Of the method.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the names above.
        class_names: In the order of the logits; else the datamodule's or module's `class_names`, else numbers.
        region_names: For a `mask` `[B, K, H, W]` of named regions; the first is the evidence.
        bound: A finding is a mean share of relevance on the annotation that lies surely below this: a share in (0, 1),
            or "chance", the annotated area.
        confidence: Of intervals and findings.
        intervention: What judges a suspicion in the epoch in which it arises: "swap" what lies outside the annotation
            with another class's and, as the control, its own class's; "inpaint" or "fill" it; None leaves findings
            suspected. Fixed positions are painted over, tokens deleted. Costs 2 or 3 forward passes per region.
        min_effect: The least mean change of a probability, beyond the control's, that confirms a finding; 0.3 for what
            no map shows.
        fail_on: "confirmed" or "suspected": end training after an epoch with such a finding, with an error.
        targets: Which classes to explain: "label", "predicted".
        batch_size: Samples per forward pass of the monitor, which needs the memory of training.
        max_pictures: Pictures or texts drawn per epoch; with 0, no inputs are kept, either.
        class_maps: For how many classes, the most probable and those of `targets`, what is drawn has maps on the
            dashboard; 0 for those of `targets` alone. Each class costs a backward walk over what is drawn.
        max_record_mb: Size of the run's folder beyond which no pictures are added, in megabytes.
        mean: Per channel, to undo the normalisation of images in pictures.
        std: Per channel, likewise.
        tokenizer: To name tokens: a tokenizer, its name or folder; else that of the datamodule or module.
        dataloader_idx: Which validation dataloader.
        on_error: "warn": a failure after the start is reported once, counted, and training goes on; "raise": it ends
            training.
        run_name: Folder under `relevance/`, numbered if it exists; else the time. A resumed run continues its own.
        seed: Of the sample.
        mixing_ratios: Log, too, per block what share of a token's state comes from other tokens.
        progress_bar: Show one while the monitor works.
        name: Tells several monitors apart: their keys are `relevance/<name>/...`.

    Attributes:
        findings: Of the last evaluation, those that were refuted, too.
        failures: How often the monitor failed.
        folder: Where the run is written; None before, and in all processes but the first.
        scored: The last evaluation, without inputs and annotations.

    Raises:
        ValueError: At construction, when training is set up or in the sanity check, with what to change.
        FindingError: When training has ended because of `fail_on`.
    """

    findings: list[Finding]
    folder: Path | None
    scored: list[Scored]
    _attached: tuple[int, str] | None
    _scalars: dict[str, float]
    _evaluated_epoch: int | None
    _continued: str | None
    _holding: Holding | None

    def __init__(
        self,
        max_samples: int = 128,
        every_n_epochs: int = 1,
        method: str = "transformer_attribution",
        method_options: dict[str, Any] | None = None,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
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
        class_maps: int = 10,
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
        options = dict(method_options or {})
        get_method(method, options)
        check_counts(max_samples=max_samples, every_n_epochs=every_n_epochs, batch_size=batch_size)
        check_counts(0, max_pictures=max_pictures, class_maps=class_maps)
        check_choices(bound, confidence, targets, on_error)
        check_judging(intervention, min_effect, fail_on)
        check_looks(mean, std)
        self.max_samples, self.every_n_epochs = max_samples, every_n_epochs
        how = tuple(targets), batch_size, tuple(region_names), mixing_ratios, class_maps
        self.explainer = Explainer(method, options, *how)
        self.model, self.batch_adapter = model, batch_adapter
        self.reporter = Reporter(bound, confidence, class_names, tokenizer, mean, std, min_effect, region_names)
        self.setting = InterventionConfig(intervention, batch_size, seed=seed) if intervention is not None else None
        self.fail_on = fail_on
        self._writer, self.max_pictures = RecordWriter(max_record_mb), max_pictures
        self.dataloader_idx, self.on_error = dataloader_idx, on_error
        self.run_name, self.seed, self.progress_bar = run_name, seed, progress_bar
        self.name, self._attached = name, None
        self._start_over()

    @property
    def failures(self) -> int:
        """How often the monitor failed."""
        return self._failures.count

    @property
    def state_key(self) -> str:
        """Monitors of different names, methods, models or dataloaders keep their own state."""
        return self._generate_state_key(
            name=self.name, method=self.explainer.method, model=self.model, dataloader_idx=self.dataloader_idx
        )

    @property
    def prefix(self) -> str:
        """What every logged key starts with."""
        return f"relevance/{self.name}" if self.name else "relevance"

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run continues: its folder, findings, last scalars and when they were computed."""
        return {
            "run": self.folder.name if self.folder is not None else self._continued,
            "findings": [finding.to_dict() for finding in self.findings],
            "scalars": dict(self._scalars),
            "evaluated_epoch": self._evaluated_epoch,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self._continued, self.folder = state_dict["run"], None
        self.findings = [Finding.from_dict(values) for values in state_dict["findings"]]
        self._scalars, self._evaluated_epoch = dict(state_dict["scalars"]), state_dict["evaluated_epoch"]

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse what cannot work, before anything is lost."""
        if stage not in ("fit", "validate"):
            return
        super().setup(trainer, pl_module, stage)
        require("pyarrow", "monitor")
        check_names([callback.name for callback in trainer.callbacks if isinstance(callback, RelevanceMonitor)])
        # Every process logs the same values: no synchronisation, which could wait for a process that failed.
        warnings.filterwarnings("ignore", r"It is recommended to use `self.log\('relevance/")
        if self._attached != (id(trainer), stage):
            self._attached = (id(trainer), stage)
            self._start_over()
        self._draw, self._holding = Draw(self.max_samples, self.seed), None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the clock."""
        self._clock.start(anew=True)

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a validation."""
        self._finished = False
        self._failures_before = self.failures
        self._clock.start()

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Let samples pass by; evaluate after the last batch, before callbacks that swap weights swap them back."""
        if dataloader_idx != self.dataloader_idx:
            return
        if trainer.sanity_checking:
            if batch_idx == 0:
                self._rehearse(trainer, pl_module, batch)
            return
        if self._draw.samples is None:
            with self._failures.caught("drawing the sample"), self._clock.timed():
                known = read_batch(batch, self.batch_adapter)
                self._draw.pass_by(known, undivided_length(trainer, self.dataloader_idx))
            if batch_idx == 0:
                self._check_masks(trainer, batch)
        if batch_idx + 1 == trainer.num_val_batches[self.dataloader_idx]:
            self._finish(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Show the scalars to checkpoints and early stopping, also those of the last evaluation; loggers have them."""
        if trainer.sanity_checking:
            return
        if not self._finished:  # a stream, whose last batch was not known as such
            self._finish(trainer, pl_module)
        failures = f"{self.prefix}/failures"
        self._scalars[failures] = float(self.failures)
        for key, value in self._scalars.items():
            pl_module.log(key, value, logger=False)  # Lightning would log old values again, and ends if this changes
        if self.failures > self._failures_before and trainer.is_global_zero:
            for logger in trainer.loggers:
                with suppress(Exception):  # it may be what failed
                    log_scalars(logger, {failures: self._scalars[failures]}, trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End training if a finding asks for it: in order, so that checkpoints are written."""
        if forbidden(self.findings, self.fail_on) is not None and not trainer.sanity_checking:
            trainer.should_stop = True
            if trainer.state.fn == "validate":
                refuse(self.findings, self.fail_on)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Say why training ended."""
        refuse(self.findings, self.fail_on)

    def _start_over(self) -> None:
        self.findings, self.scored, self.folder = [], [], None
        self._failures = Failures(self.on_error)
        self._scalars, self._evaluated_epoch = {}, None
        self._continued, self._clock = None, Clock()

    def _find_model(self, trainer: Any, pl_module: Any) -> None:
        if self._model is not None:
            return
        super()._find_model(trainer, pl_module)
        if self._model is not pl_module and trainer.is_global_zero:
            print(f"RelevanceMonitor explains {type(self._model).__name__} of {type(pl_module).__name__}", flush=True)

    def _rehearse(self, trainer: Any, pl_module: Any, batch: Any) -> None:
        """Explain and draw a batch in the sanity check, where an error still costs nothing."""
        known = read_batch(batch, self.batch_adapter)
        check_mask_values(known)
        samples = [take(known, row, row) for row in range(min(batch_length(known), self.explainer.batch_size))]
        owners = find_owners(trainer, pl_module)
        with preserved(pl_module):
            scored = self._explain(trainer, pl_module, samples)
            record = self.reporter.record(scored, owners, self.reporter.suspects(scored, owners))
            self.reporter.drawn(record, scored[: min(1, self.max_pictures)], owners)

    def _check_masks(self, trainer: Any, batch: Any) -> None:
        """Check the first batch of a first validation that no sanity check came before."""
        if trainer.state.fn == "validate":  # nothing is lost by an error
            check_mask_values(read_batch(batch, self.batch_adapter))
        with self._failures.caught("reading the masks"):
            check_mask_values(read_batch(batch, self.batch_adapter))

    def _finish(self, trainer: Any, pl_module: Any) -> None:
        """Draw the sample and evaluate, if it is time. A failure in here befalls all processes alike."""
        self._finished = True
        with self._failures.caught("evaluating"), self._clock.timed():
            samples = self._draw.drawn()
            epoch, last = trainer.current_epoch, self._evaluated_epoch
            if trainer.state.fn == "fit" and last is not None and last < epoch < last + self.every_n_epochs:
                return
            self._evaluated_epoch = epoch
            with preserved(pl_module):
                self._evaluate(trainer, pl_module, samples)

    def _evaluate(self, trainer: Any, pl_module: Any, samples: list[Sample]) -> None:
        started = time.monotonic()
        try:
            mine = self._explain(trainer, pl_module, samples, self.progress_bar and trainer.is_global_zero)
        except Exception as error:
            share_scored([], described(error), self.max_pictures)  # the other processes wait for this one
            self._failures.note("computing relevance", error)
            return
        scored, shown, failed = share_scored(mine, "", self.max_pictures)
        if failed:
            self._failures.note("computing relevance", RuntimeError(failed))
            return
        when = trainer.current_epoch, logged_step(trainer)
        owners = find_owners(trainer, pl_module)
        if self.setting is not None and self._holding is None:
            self._holding = Holding(*share_samples(samples))
        suspects = self.reporter.suspects(scored, owners, *when, self._holding and self._holding.samples)
        effects = self._intervene(trainer, pl_module, scored, suspects)
        record = self.reporter.record(scored, owners, suspects, effects, self.findings, *when)
        self.scored, self.findings = scored, record.findings
        with self._failures.caught("computing maps of many classes"):
            record = replace(record, class_maps=self._class_maps(trainer, pl_module, shown, record.class_names))
        found = record.scalars | self._clock.costs(started) | {"relevance/failures": float(self.failures)}
        self._scalars = {key.replace("relevance", self.prefix, 1): value for key, value in found.items()}
        if trainer.is_global_zero:
            self._write(trainer, pl_module, replace(record, scalars=self._scalars, prefix=self.prefix), shown)

    def _explain(self, trainer: Any, pl_module: Any, samples: list[Sample], bar: bool = False) -> list[Scored]:
        assert self._model is not None
        hidden, context = not bar or trainer.progress_bar_callback is None, trainer.precision_plugin.val_step_context
        return evaluate_all(self._model, samples, self.explainer, pl_module.device, context, hidden)

    def _class_maps(self, trainer: Any, pl_module: Any, shown: list[Scored], names: list[str]) -> list[ClassMap]:
        """Of what is shown, which the first process alone has."""
        assert self._model is not None
        context = trainer.precision_plugin.val_step_context
        return class_maps(self._model, shown, self.explainer, names, pl_module.device, context)

    def _intervene(
        self, trainer: Any, pl_module: Any, scored: list[Scored], suspects: list[Suspect]
    ) -> list[Effect | str] | None:
        """Judge what is suspected; None if nothing shall be."""
        if self.setting is None or self._holding is None or self._model is None:
            return None
        context = trainer.precision_plugin.val_step_context
        return intervene(self._model, self._holding, scored, suspects, self.setting, pl_module.device, context)

    def _write(self, trainer: Any, pl_module: Any, record: EpochRecord, shown: list[Scored]) -> None:
        """To the folder, the terminal and the loggers, none of which shall keep the others from it."""
        with self._failures.caught("drawing"):
            samples = self._holding and self._holding.samples
            record = self.reporter.drawn(record, shown, find_owners(trainer, pl_module), self.scored, samples)
        with self._failures.caught("writing files"):
            record = self._writer.write(self._run_folder(trainer, pl_module, record.class_names), record)
        for line in announce(record.new_findings):
            print(line, flush=True)
        for logger in trainer.loggers:
            for sending in (send_scalars, send):
                with self._failures.caught(f"logging to {type(logger).__name__}"):
                    sending(logger, record)

    def _run_folder(self, trainer: Any, pl_module: Any, names: list[str]) -> Path:
        if self.folder is None:
            fits = trainer.state.fn == "fit"
            continued = self._continued if fits else None
            folder = run_folder(trainer.default_root_dir, self.run_name, "" if fits else "-validate", continued)
            write_settings(folder, settings(pl_module, self._model, self.explainer, self.reporter, names))
            self.folder = folder
        return self.folder
