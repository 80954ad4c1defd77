"""Can the maps be trusted on this model? The audit of explanations, once, when training has ended."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from lrptrain.audit import AuditResult, AuditSettings, run_audit
from lrptrain.audit.base import select_tests
from lrptrain.audit.report import scalars, write_report
from lrptrain.batch import BatchAdapter, Sample, batch_length, batched, read_batch, take
from lrptrain.callbacks.model_callback import ModelCallback
from lrptrain.extras import require
from lrptrain.monitor.sampling import Draw
from lrptrain.relevance.preserve import preserved
from lrptrain.relevance.registry import get_method
from lrptrain.trainers.checks import check_counts, check_strategy
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.lightning import log_scalars, undivided_length
from lrptrain.trainers.processes import gather_to_first
from lrptrain.trainers.run_folder import run_folder

METHODS = ("raw_attention", "transformer_attribution", "attnlrp", "random")


class ExplanationAudit(ModelCallback):
    """Tests at the end of `fit` (and in `validate`) whether methods are faithful on the trained model.

    Attach it to any LightningModule whose forward gives logits. The first validation draws a class-stratified sample
    as its batches pass by (form of batches as for `RelevanceMonitor`); as many of the first training samples serve the
    tests that train a model. The audit (`lrptrain.audit.run_audit`) runs once, in the first process, in the model's own
    precision and without autocast, and leaves weights, gradients, flags and random states as they were. A verdict per
    method is printed: "faithful on this model: yes / weakly / no", or why it is not judged.

    Logged per method: `audit/<method>/perturbation_gain`, how much better than random orders its order is; and
    `audit/<method>/verdict`: 1 yes, 0.5 weakly, 0 no; nothing where it was not judged.

    Written to `<default_root_dir>/relevance/<run>/audit/`, beside the record of a `RelevanceMonitor` if there is one:
    `audit.md`, `results.json`, pictures, and `units.jsonl` with all that was measured.

    Args:
        methods: Some of `lrptrain.methods()`.
        budget: Seconds; tests that do not fit are left out, and named. The other processes wait as long.
        tests: Names of those to run, see `lrptrain.audit.registered_tests`; all without.
        max_samples: Size of the sample, in all processes together; a verdict needs 8.
        batch_size: Samples per forward pass.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the names of the contract.
        fill: What removed pixels become, one number or one per channel: black, in normalised units -mean / std.
        retrain: `retrain(seed)` trains the model anew and returns it; without it, no other seeds are tested.
        retrain_seconds: About how long that takes.
        settings: How much each test does.
        dataloader_idx: Which validation dataloader.
        on_error: "warn": a failure of the audit is a warning; "raise": it ends the run, in the first process.
        run_name: Folder under `relevance/` where there is no monitor, numbered if it exists; else the time.
        seed: Of all that is drawn.

    Attributes:
        result: What the audit found; None before, and in all processes but the first.

    Raises:
        ValueError: At construction or when training is set up, with what to change.
    """

    result: AuditResult | None

    def __init__(
        self,
        methods: Sequence[str] = METHODS,
        budget: float = 120.0,
        tests: Sequence[str] | None = None,
        max_samples: int = 64,
        batch_size: int = 16,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
        fill: float | Sequence[float] = 0.0,
        retrain: Callable[[int], nn.Module] | None = None,
        retrain_seconds: float = 0.0,
        settings: AuditSettings | None = None,
        dataloader_idx: int = 0,
        on_error: Literal["warn", "raise"] = "warn",
        run_name: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if isinstance(methods, str) or not methods:
            raise ValueError(f"methods must be a list of names of lrptrain.methods(), not {methods!r}")
        self.methods = tuple(get_method(name, {}).name for name in methods)
        select_tests(tests)
        check_counts(max_samples=max_samples, batch_size=batch_size)
        if on_error not in ("warn", "raise"):
            raise ValueError(f"on_error must be 'warn' or 'raise', not {on_error!r}")
        if not budget > 0:
            raise ValueError(f"budget must be a positive number of seconds, not {budget}")
        self.budget, self.max_samples, self.batch_size = budget, max_samples, batch_size
        self.model, self.batch_adapter, self.dataloader_idx = model, batch_adapter, dataloader_idx
        self.options: dict[str, Any] = {
            "tests": tests, "settings": settings, "seed": seed, "fill": fill,
            "retrain": retrain, "retrain_seconds": retrain_seconds,
        }  # fmt: skip
        self.run_name, self.seed, self.on_error = run_name, seed, on_error
        self.result, self._model = None, None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse what cannot work, before anything is lost."""
        if stage not in ("fit", "validate"):
            return
        check_strategy(trainer.strategy, "ExplanationAudit")
        require("matplotlib", "monitor")
        if stage == "fit" and not trainer.enable_validation:
            raise ValueError("ExplanationAudit draws its sample from the validation: give the trainer one")
        self.result, self._model = None, None
        self._failures = Failures(self.on_error, "ExplanationAudit")
        self._draw, self._train = Draw(self.max_samples, self.seed), list[Sample]()

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Let samples pass by."""
        if dataloader_idx != self.dataloader_idx:
            return
        if trainer.sanity_checking:
            read_batch(batch, self.batch_adapter)  # an error here still costs nothing
        elif self._draw.samples is None:
            with self._failures.caught("drawing the sample"):
                known = read_batch(batch, self.batch_adapter)
                self._draw.pass_by(known, undivided_length(trainer, self.dataloader_idx))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Keep the first training samples."""
        missing = self.max_samples - len(self._train)
        if missing > 0 and trainer.is_global_zero:
            with self._failures.caught("keeping training samples"):
                known = read_batch(batch, self.batch_adapter)
                rows = range(min(missing, batch_length(known)))
                self._train += [take(known, row, len(self._train) + row) for row in rows]

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """The sample is drawn when the first validation has passed, in all processes."""
        if not trainer.sanity_checking:
            with self._failures.caught("drawing the sample"):
                self._draw.drawn()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Audit in `trainer.validate`."""
        if trainer.state.fn == "validate":
            self._audit(trainer, pl_module)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Audit the trained model."""
        self._audit(trainer, pl_module)

    def _audit(self, trainer: Any, pl_module: Any) -> None:
        """In the first process; the others wait, whatever happens there."""
        parts = gather_to_first(self._draw.drawn())
        try:
            if trainer.is_global_zero:
                with self._failures.caught("auditing"), preserved(pl_module):
                    samples = [sample for part in parts for sample in part]
                    self._run(trainer, pl_module, samples)
        finally:
            trainer.strategy.barrier("lrptrain.audit")

    def _run(self, trainer: Any, pl_module: Any, samples: Sequence[Sample]) -> None:
        if not samples:
            warnings.warn("ExplanationAudit saw no validation sample: nothing was audited", stacklevel=2)
            return
        assert self._model is not None
        batches, train = (self._batches(trainer, pl_module, own) for own in (samples, self._train))
        folder = self._folder(trainer)
        with torch.autocast(pl_module.device.type, enabled=False):
            self.result = run_audit(
                self._model,
                batches,
                self.methods,
                budget=self.budget,
                folder=folder,
                train_batches=train,
                **self.options,
            )
        for verdict in self.result.verdicts:
            print(verdict, flush=True)
        print(f"ExplanationAudit: {folder / 'audit.md'}", flush=True)
        with self._failures.caught("writing files"):
            write_report(self.result, folder)
        for logger in trainer.loggers:
            with self._failures.caught(f"logging to {type(logger).__name__}"):
                log_scalars(logger, scalars(self.result), trainer)

    def _batches(self, trainer: Any, pl_module: Any, samples: Sequence[Sample]) -> list[Any]:
        batches = batched(samples, self.batch_size, pl_module.device)
        return [trainer.precision_plugin.convert_input(batch) for batch in batches]

    def _folder(self, trainer: Any) -> Path:
        monitored = (each.folder for each in trainer.callbacks if type(each).__name__ == "RelevanceMonitor")
        own = next((folder for folder in monitored if folder is not None), None)
        if own is None:
            suffix = "" if trainer.state.fn == "fit" else "-validate"
            own = run_folder(trainer.default_root_dir, self.run_name, suffix)
        return own / "audit"
