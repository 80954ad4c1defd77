"""Can the maps be trusted on this model? The audit of explanations, once, when training has ended."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from lrptrain.auditing import AuditResult, AuditSettings
from lrptrain.auditing.audit import check_arguments, run_audit
from lrptrain.auditing.report import audit_scalars, write_audit_report
from lrptrain.batch import BatchAdapter, Sample, batched, read_batch
from lrptrain.batch.task import Task, TaskName, find_task
from lrptrain.callbacks.base import ModelCallback, inform, warn
from lrptrain.callbacks.relevance_monitor import monitored_folder
from lrptrain.extras import require
from lrptrain.monitor.stratified_sample import ValidationSample
from lrptrain.relevance.model.preserve import preserved
from lrptrain.trainers.checks import check_counts, check_on_error, check_run_name
from lrptrain.trainers.failures import Failures
from lrptrain.trainers.lightning import log_to_all, undivided_length
from lrptrain.trainers.processes import gather_to_first
from lrptrain.trainers.run_folder import new_run_folder

if TYPE_CHECKING:
    import pytorch_lightning as pl

AUDITED_METHODS = ("raw_attention", "transformer_attribution", "attnlrp", "random")


class ExplanationAudit(ModelCallback):
    """Runs `lrptrain.audit` at the end of `fit`, and in `validate`: are methods faithful on the trained model?

    Attach it to any LightningModule whose forward returns logits. The first validation draws a class-stratified sample
    from its batches. The audit runs once, in the first process and without autocast, and leaves the model as it was.
    It gives a verdict per method: "faithful on this model: yes / weakly / no", or why it is not judged.

    Logged per method: `audit/<method>/perturbation_gain`, how much better than random orders its order is, in [-2, 2];
    and `audit/<method>/verdict`: 1 yes, 0.5 weakly, 0 no. `audit.html`, `results.json` and `units.jsonl` with all that
    was measured lie in `<default_root_dir>/relevance/<run>/audit/`.

    Examples:
        >>> import pytorch_lightning as pl
        >>> from lrptrain.callbacks import ExplanationAudit
        >>> audit = ExplanationAudit(["attnlrp", "gradcam"], budget=60)
        >>> trainer = pl.Trainer(callbacks=[audit], logger=False)  # trainer.fit(...), then print(audit.result)

    Args:
        methods: Some of `lrptrain.methods()`.
        budget: Seconds; tests that do not fit are left out, and named. The other processes wait as long.
        max_samples: The size of the sample, in all processes together; a verdict needs 8.
        model: The attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the names of the contract.
        task: What output and labels mean; see `RelevanceMonitor`. Not `EachLabel`.
        settings: Which tests are run, and how they measure.
        dataloader_idx: The index of the validation dataloader.
        on_error: "warn": a failure of the audit is a warning; "raise": it ends the run, in the first process.
        run_name: The folder under `relevance/` where there is no monitor, numbered if it exists; None for the time.

    Attributes:
        result: The result of the audit; None before it, and in all processes but the first.

    Raises:
        ValueError: At construction or when training is set up, with what to change.
    """

    def __init__(
        self,
        methods: Sequence[str] = AUDITED_METHODS,
        budget: float = 120.0,
        max_samples: int = 64,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
        task: TaskName | Task | None = None,
        settings: AuditSettings | None = None,
        dataloader_idx: int = 0,
        on_error: Literal["warn", "raise"] = "warn",
        run_name: str | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings or AuditSettings()
        self.methods = check_arguments(methods, self.settings, budget)
        self.budget = budget
        check_counts(max_samples=max_samples)
        check_on_error(on_error)
        self.max_samples = max_samples
        self.model = model
        self.batch_adapter = batch_adapter
        find_task(task)  # an unknown name raises now
        self.task = task
        self.dataloader_idx = dataloader_idx
        self.on_error = on_error
        check_run_name(run_name)
        self.run_name = run_name
        self.result: AuditResult | None = None

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Reject what cannot work before the first step."""
        if stage not in ("fit", "validate"):
            return
        super().setup(trainer, pl_module, stage)
        require("matplotlib", "audit")  # for the plots at the end
        if stage == "fit" and not trainer.enable_validation:
            raise ValueError("ExplanationAudit draws its sample from the validation: give the trainer one")
        self.result = None
        self._failures = Failures(self.on_error, "ExplanationAudit")
        self._draw = ValidationSample(self.max_samples, self.settings.seed)

    def _read(self, batch: Any) -> dict[str, Any]:
        return read_batch(batch, self.batch_adapter, find_task(self.task, self._model))

    def on_validation_batch_end(
        self,
        trainer: "pl.Trainer",
        pl_module: "pl.LightningModule",
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw from the batches of the first validation."""
        if dataloader_idx != self.dataloader_idx:
            return
        if trainer.sanity_checking:
            self._read(batch)  # an error here still costs nothing
        elif self._draw.samples is None:
            with self._failures.caught("drawing the sample"):
                columns = self._read(batch)
                self._draw.add_batch(columns, undivided_length(trainer, dataloader_idx))

    def on_validation_epoch_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Finish the draw after the first validation, in all processes at once."""
        if not trainer.sanity_checking:
            with self._failures.caught("drawing the sample"):
                self._draw.finish()

    def on_validation_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Audit in `trainer.validate`."""
        if trainer.state.fn == "validate":
            self._audit(trainer, pl_module)

    def on_fit_end(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Audit the trained model."""
        self._audit(trainer, pl_module)

    def _audit(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Audit in the first process; the others wait, whatever happens there."""
        # Collective calls stand outside `caught`: a failure in the first process must not keep it from the barrier.
        samples_by_process = gather_to_first(self._draw.finish())
        try:
            if trainer.is_global_zero:
                with self._failures.caught("auditing"), preserved(pl_module):
                    samples = [sample for samples in samples_by_process for sample in samples]
                    self._run(trainer, pl_module, samples)
        finally:
            trainer.strategy.barrier("lrptrain.auditing")

    def _run(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", samples: Sequence[Sample]) -> None:
        if not samples:
            warn("ExplanationAudit saw no validation sample: nothing was audited")
            return
        assert self._model is not None
        folder = self._folder(trainer)
        with torch.autocast(pl_module.device.type, enabled=False):
            result = self.result = run_audit(
                self._model,
                self._batches(trainer, pl_module, samples),
                self.methods,
                budget=self.budget,
                settings=self.settings,
                folder=folder,
                task=find_task(self.task, self._model),
            )
        for verdict in result.verdicts:
            inform(str(verdict))
        inform(f"ExplanationAudit: {folder / 'audit.html'}")
        with self._failures.caught("writing files"):
            write_audit_report(result, folder)
        log_to_all(audit_scalars(result), trainer, self._failures)

    def _batches(
        self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", samples: Sequence[Sample]
    ) -> list[dict[str, torch.Tensor]]:
        # In the precision of the trainer's plugin: "64-true", for instance, gives the model doubles.
        batches = batched(samples, self.settings.batch_size, pl_module.device)
        return [trainer.precision_plugin.convert_input(batch) for batch in batches]

    def _folder(self, trainer: "pl.Trainer") -> Path:
        """Return the folder of the audit: beside the record of a monitor, or in a run folder of its own."""
        folder = monitored_folder(trainer)
        if folder is None:
            suffix = "" if trainer.state.fn == "fit" else "-validate"
            folder = new_run_folder(trainer.default_root_dir, self.run_name, suffix)
        return folder / "audit"
