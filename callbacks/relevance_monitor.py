"""Where does the model look? Relevance maps, scores and findings on a fixed validation sample, in every epoch."""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrptrain.batch import BatchAdapter
from lrptrain.batch.task import Task, TaskName
from lrptrain.callbacks.base import ModelCallback, inform, warn
from lrptrain.cues.annotator import Annotate
from lrptrain.cues.cue import Cue
from lrptrain.extras import require
from lrptrain.monitor.config import Judge, MonitorConfig, Run, Show
from lrptrain.monitor.loader_pass import is_in_order
from lrptrain.monitor.model_input import InputListener, copied
from lrptrain.monitor.monitor import MonitorCore
from lrptrain.monitor.results import MonitorResults
from lrptrain.monitor.watched import Watcher, check_names, check_watchers
from lrptrain.relevance.sharding.shards import check_shards, is_sharded, own_name
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.discover import title_of
from lrptrain.trainers.failures import is_of_the_model
from lrptrain.trainers.lightning import (
    best_checkpoint,
    callbacks_that_watch,
    end_bars,
    lightning_context,
    log_scalars,
    schedulers_that_watch,
    undivided_length,
    validation_loader,
    weights_of,
)
from lrptrain.trainers.processes import gather, in_every_process_of
from lrptrain.trainers.wrapping import wrap_method

if TYPE_CHECKING:
    import pytorch_lightning as pl

logger = logging.getLogger(__name__)

_VALIDATE = 'trainer.validate(model, loader, ckpt_path="best")'


class RelevanceMonitor(MonitorResults, ModelCallback):
    """Computes relevance maps on a fixed, class-stratified sample of the validation set and flags a wrong focus.

    Attach it to any LightningModule whose forward gives logits; training is bit-identical with and without it. Batches
    are dicts (or tuples) with `image` or `pixel_values`, or `input_ids` and `attention_mask`; `label`; and, where there
    are annotations, a `mask` `[B, H, W]`, `boxes` `[B, K, 4]` or a `rationale` `[B, T]` (1 evidence, 0 not, 255
    ignored). The first validation draws the sample.

    Scalars are logged under `relevance/` (`docs/reference/logged-keys.md` says what each means). Pictures, texts and
    findings go to every logger that takes them, and to `<default_root_dir>/relevance/<run>/`.

    Examples:
        >>> import pytorch_lightning as pl
        >>> from lrptrain.callbacks import RelevanceMonitor
        >>> from lrptrain.data import PlantedDigits
        >>> from lrptrain.models import ImageClassifier
        >>> network = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
        >>> data = PlantedDigits(image_size=16, digit_size=8, train_size=32, val_size=32)
        >>> quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        >>> monitor = RelevanceMonitor()
        >>> trainer = pl.Trainer(max_epochs=1, callbacks=[monitor], **quiet)
        >>> trainer.fit(ImageClassifier(num_classes=10, model_kwargs=network), datamodule=data)
        >>> len(monitor.scored)
        32

    Args:
        max_samples: The size of the sample, in all processes together. A verdict on a single class needs 8 of it.
        budget: The share of the time of training, in (0, 1), that the monitor takes at most: evaluations become rarer,
            then smaller. A run that is too short for that has one small evaluation, of the kept checkpoint. Where
            `fail_on`, early stopping or checkpoints need the values, every validation is evaluated, whatever that
            takes. None for an evaluation in full in each validation.
        method: One of `lrptrain.methods()`. By default that of `lrptrain.attribute`, for the whole run.
        model: The attribute path of the model on the LightningModule, where that has no forward of its own, or of the
            method that gives the logits.
        explain: The parameter of the model's forward that is explained, where it takes several images or texts.
        task: What output and labels mean: "classes" (one-hot labels), "binary" (one logit), `lrptrain.EachLabel()` or
            `lrptrain.OneLabel(column)` of several labels per sample, `lrptrain.Regression(mean, std)`, or
            `lrptrain.Ordinal()`. By default classes, or two of them by one logit.
        batch_adapter: Brings a batch of another form to the names above.
        annotate: Makes the annotations, where batches hold none. Of images: a network that segments them, or
            `function(image, label)` that returns a mask `[H, W]`, boxes `[n, 4]`, or None. Of texts: words,
            `re.compile(...)`, or `function(text)` that returns words or spans (start, end) of characters.
        tokenizer: The tokenizer that names tokens, its name or its folder; None for that of the datamodule or module.
        cues: Cues to be tested beside those that the samples propose (places, marks, colours, words ...), or of which
            you say what they are: `cues=[finding.cue.declared("annotation")]`, or `"shortcut"`. None tests none.
        show: What maps are of, and how pictures name and draw things: `lrptrain.Show(class_names=..., mean=...)`.
        judge: How strictly it judges, and what ends training: `lrptrain.Judge(fail_on="relies")`.
        run: When it evaluates, under which names it writes, and what a failure does: `lrptrain.Run(run_name="a")`.

    Attributes:
        findings: The findings of the last evaluation, the most severe first.
        scalars: The scalars of the last evaluation, by the keys under which they are logged.
        failures: The number of the monitor's failures.
        folder: The folder of the run; None before the first evaluation, and in all processes but the first.
        scored: The explained samples of the last evaluation, without inputs and annotations.

    Raises:
        TypeError: If there is no such argument, or it lies in `show`, `judge` or `run`, with what to write.
        ValueError: At construction, when training is set up or in the sanity check, with what to change.
        FindingError: When training has ended because of `fail_on`.
    """

    takes_shards = True

    def __init__(
        self,
        max_samples: int = 128,
        budget: float | None = 0.05,
        method: str | None = None,
        model: str | None = None,
        explain: str | None = None,
        task: TaskName | Task | None = None,
        batch_adapter: BatchAdapter | None = None,
        annotate: Annotate | None = None,
        tokenizer: Any = None,
        cues: Sequence[Cue] | None = (),
        show: Show | None = None,
        judge: Judge | None = None,
        run: Run | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        self.model = model
        options = {
            "max_samples": max_samples,
            "budget": budget,
            "method": method,
            "explain": explain,
            "task": task,
            "batch_adapter": batch_adapter,
            "annotate": annotate,
            "tokenizer": tokenizer,
            "cues": cues,
            "show": show,
            "judge": judge,
            "run": run,
        }
        self.config = MonitorConfig.of("RelevanceMonitor", options | unknown)
        self.dataloader_idx = self.config.run.dataloader_idx
        self.core = MonitorCore(self.config, inform, warn)
        self._attached_to: tuple[int, str] | None = None
        self._reset()

    def _reset(self) -> None:
        self.core.reset()
        self._listener: InputListener | None = None
        self._batch: Any = None
        self._finished = False
        self._waits = False
        self._failures_before = 0

    @property
    def state_key(self) -> str:
        """The key in checkpoints: monitors of other names, methods, models or dataloaders keep their own state."""
        return self._generate_state_key(
            name=self.config.run.name, method=self.config.method, model=self.model, dataloader_idx=self.dataloader_idx
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues: its folder, findings, last scalars and when they were computed."""
        return self.core.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.core.load_state_dict(state_dict)

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject what cannot work, before anything is lost."""
        if stage not in ("fit", "validate"):
            return
        super().setup(trainer, pl_module, stage)
        require("pyarrow", "monitor")
        check_names([monitor.config.run.name for monitor in _monitors(trainer)])
        # Every process logs the same values: no synchronisation, which could wait for a process that failed.
        warnings.filterwarnings("ignore", r"It is recommended to use `self.log\('relevance/")
        if self._attached_to != (id(trainer), stage):  # a resumed run keeps what its checkpoint said
            self._attached_to = (id(trainer), stage)
            self._reset()
        # Drawn anew in any case: the trainer may come with other data.
        self.core.start_draw()
        if stage == "fit":
            self.core.watch(pl_module)
            self._check_validation(trainer)

    def _check_validation(self, trainer: "pl.Trainer") -> None:
        """Say where the monitor will have nothing to do, or its values are old."""
        if not trainer.enable_validation:
            self.core.expect_nothing(
                "this trainer runs no validation (no dataloader, no validation_step, or limit_val_batches=0)"
            )
        interval = self.config.run.every_n_epochs
        watching = callbacks_that_watch(trainer, f"{self.config.prefix}/")
        if watching:
            # A smaller sample may lack a rare class, and so the score that a checkpoint cannot do without.
            self.core.planner.evaluate_in_every_validation(any("_per_" in each.monitor for each in watching))
        check_watchers([_watcher(each) for each in watching], self.config, inform, warn)
        if interval > 1 and watching:
            names = dict.fromkeys(type(each).__name__ for each in watching)
            inform(
                f"{' and '.join(names)} will see each value of {self.config.title} in {interval} epochs, as it is "
                f"computed every {interval} epochs: count patience and saved checkpoints accordingly, or evaluate in "
                "every epoch"
            )

    def on_train_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Start the clock; see which learning rates follow the monitor's values, now that there are schedulers."""
        watching = [Watcher(*each) for each in schedulers_that_watch(trainer, f"{self.config.prefix}/")]
        if watching:
            self.core.planner.evaluate_in_every_validation()
            check_watchers(watching, self.config, inform, warn)
        self.core.planner.clock.start(restart=True)

    def on_sanity_check_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Reject masks that are certainly misread: no batch of the sanity check had one that says otherwise."""
        # Each process has seen batches of its own, and none may continue without the others.
        problem = next((each for each in gather(self.core.reader.png_masks.problem) if each), "")
        if problem:
            raise ValueError(problem)

    def on_validation_epoch_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Begin a validation."""
        self._finished = False
        self._failures_before = self.failures
        if trainer.state.fn == "validate":  # after the states of a checkpoint are loaded
            self.core.judging.start_over()
        if not self.core.reader.is_drawn:
            self.core.start_draw(in_order=is_in_order(validation_loader(trainer, self.dataloader_idx)))
        self.core.planner.clock.start()

    def on_validation_batch_start(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the batch as it is, before the step may change it, and listen to what the step gives the model."""
        draws = trainer.sanity_checking or not self.core.reader.is_drawn
        if draws and dataloader_idx == self.dataloader_idx and self._model is not None:
            self._batch = copied(batch)
            is_first = batch_idx == 0
            self._listener = InputListener(self._model, batch, is_first, pl_module if is_first else None)

    def on_exception(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", exception: BaseException) -> None:
        """Listen no longer, and stop the clock: the same trainer may continue with what it has paid for by now."""
        self._heard()
        self._waits = False
        self.core.planner.clock.stop()

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
        batch, self._batch = self._batch, None
        if trainer.sanity_checking or (trainer.state.fn == "validate" and batch_idx == 0):
            in_every_process_of(pl_module, lambda: self._try(trainer, pl_module, batch, listener, batch_idx))
        if trainer.sanity_checking:
            return
        if not self.core.reader.is_drawn:
            with self.core.guarded("drawing the sample"):
                set_length = undivided_length(trainer, dataloader_idx)
                self.core.add_batch(self._context(trainer, pl_module), batch, set_length, listener)
        # Not in `on_validation_epoch_end`: there a callback that averages weights may have taken its weights out again,
        # if it comes earlier in the trainer's list, and the maps would be those of other weights than the validation's.
        if batch_idx + 1 == trainer.num_val_batches[dataloader_idx]:
            self._finish_validation(trainer, pl_module)

    def _try(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        batch: Any,
        listener: InputListener | None,
        batch_idx: int,
    ) -> None:
        """Reject a batch that cannot be used, and before a training what an evaluation would fail with."""
        context = self._context(trainer, pl_module)
        contract_batch = self.core.reader.check(context, batch, listener)
        if not trainer.sanity_checking or batch_idx > 0:
            return
        try:
            self.core.check_first_batch(context, batch, contract_batch)
        except Exception as error:
            # What fails in the user's own model would be a warning in every later epoch, too.
            if not is_of_the_model(error):
                raise
            self.core.failures.note("trying the first batch", error)

    def on_validation_epoch_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Show the scalars to checkpoints and early stopping, also those of the last evaluation; loggers have them."""
        if trainer.sanity_checking:
            return
        if not self._finished:  # an iterable dataset, whose last batch was not known as such
            self._finish_validation(trainer, pl_module)
        # Every process logs, for each decides for itself whether to checkpoint or to stop. The values are the same in
        # all, so that nothing is synchronised here; see `setup`.
        failures = self.core.count_failures()
        for key, value in self.core.recorder.scalars.items():
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
            self.core.raise_if_misread()
            self.core.end_validation()
            self.core.raise_if_failed(is_trained=False)
        # No error yet in `fit`: callbacks that come later, such as checkpoints, would miss this epoch. `on_fit_end`
        # raises it.
        elif not trainer.sanity_checking and self.core.judging.is_forbidden():
            trainer.should_stop = True

    def on_train_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Evaluate the kept checkpoint as soon as every callback has left its own in the model, such as averages."""
        if not trainer.enable_validation or self._model is None:
            return

        def wrapped(method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            unwrap()
            result = method(*args, **kwargs)
            if self._waits:
                self._waits = False
                self._evaluate_kept(trainer, pl_module)
            return result

        # The module's own hook comes after those of all callbacks, and before the strategy takes the model apart.
        self._waits = True
        unwrap = wrap_method(pl_module, "on_train_end", wrapped)

    def _evaluate_kept(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Evaluate the weights of the best checkpoint where there is one, else those that training has ended with."""
        context = self._context(trainer, pl_module)
        # By now Lightning has counted the epoch and the batch that a validation at the end would have followed.
        moment = context.moment
        moment = replace(moment, epoch=max(moment.epoch - 1, 0), step=max(moment.step - 1, 0))
        context = replace(context, moment=moment)
        path = trainer.strategy.broadcast(best_checkpoint(trainer))
        if path and is_sharded(pl_module):
            inform(f"{self.config.title} leaves out the best checkpoint of a sharded model: {_VALIDATE} evaluates it")
        elif path and self.core.reader.is_drawn:
            with self.core.failures.caught(f"loading the best checkpoint {path!r}"):
                with weights_of(trainer, pl_module, path):
                    self.core.evaluate_kept(context)
                return
        self.core.evaluate_kept(context, are_kept=not path)

    def on_fit_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Note the end of the run, and raise an error if a finding ended training, or none was looked for."""
        end_bars(trainer)
        self.core.end()
        if not self.core.has_evaluated and not self.failures and trainer.enable_validation:
            warn(f"{self.config.title} evaluated nothing in this run: no validation was completed (max_steps?)")
        self.core.raise_if_failed()

    def _find_model(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        # Validations start in every epoch; the model is looked up, and its name is told to the user, once.
        if self._model is not None:
            return
        super()._find_model(trainer, pl_module)
        check_shards(pl_module)
        assert self._model is not None
        if self._model is not pl_module:
            inform(f"{self.config.title} explains {title_of(self._model)} of {own_name(pl_module)}")

    def _context(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> TrainingContext:
        assert self._model is not None
        return lightning_context(trainer, pl_module, self._model)

    def _heard(self) -> InputListener | None:
        """Listen no longer; return what listened since `on_validation_batch_start`."""
        listener = self._listener
        self._listener = None
        if listener is not None:
            listener.stop()
        return listener

    def _finish_validation(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Evaluate, once in each validation."""
        self._finished = True
        self.core.evaluate(self._context(trainer, pl_module))


def monitored_folder(trainer: "pl.Trainer") -> Path | None:
    """Return the folder in which a monitor of the trainer records its run; None if there is none, or not yet."""
    return next((each.folder for each in _monitors(trainer) if each.folder is not None), None)


def _monitors(trainer: "pl.Trainer") -> list[RelevanceMonitor]:
    return [each for each in trainer.callbacks if isinstance(each, RelevanceMonitor)]  # type: ignore[attr-defined]


def _watcher(callback: Any) -> Watcher:
    """Return how a callback of Lightning decides by a value, and what to paste where it should do so otherwise."""
    name, mode = type(callback).__name__, getattr(callback, "mode", "")
    return Watcher(
        name,
        callback.monitor,
        {"min": False, "max": True}.get(mode),
        f"{name}(monitor={callback.monitor!r}, mode={'max' if mode == 'min' else 'min'!r})",
        f"{name}({callback.monitor!r}, mode={mode!r}, patience={getattr(callback, 'patience', None)}, "
        "check_finite=False)"
        if getattr(callback, "check_finite", False)
        else "",
    )
