"""Where does the model look? Relevance maps, scores and findings on a fixed validation sample, in every epoch."""

import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from lrptrain.callbacks.base import Callback
from lrptrain.findings import Finding, merge_findings
from lrptrain.loggers import EpochRecord, send, write_record
from lrptrain.monitoring import attach, summary
from lrptrain.monitoring.batch import BatchAdapter, Sample, batch_length, read_batch, take
from lrptrain.monitoring.evaluate import TARGETS, Explainer, Scored, evaluate
from lrptrain.monitoring.processes import gather, rank_and_size
from lrptrain.monitoring.sample import SampleKeeper
from lrptrain.relevance.preserve import preserved
from lrptrain.relevance.registry import get_method


class RelevanceMonitor(Callback):
    """Computes relevance maps on a fixed, class-stratified sample of the validation set and flags a wrong focus.

    Attach it to any LightningModule whose forward gives logits; nothing of the model or the module is edited, and training is
    bit-identical with and without it. Batches are dicts (or tuples) with `image` or `pixel_values`, or `input_ids` and
    `attention_mask`; `label`; and, to be scored, a `mask` `[B, H, W]`, `boxes` `[B, K, 4]` or a `rationale` `[B, T]` (1
    evidence, 0 not, 255 ignored). The first validation epoch draws the sample as its batches pass by.

    Logged (`<target>` is `label` or `predicted`; shares and accuracies in 0..1):
        `relevance/<target>/energy_pointing_game`: Share of the positive relevance on the annotation; per class with
            `/<class>` behind it.
        `relevance/<target>/pointing_game`, `/rank_accuracy`, `/auprc`: The other localisation scores.
        `relevance/<target>/region/<name>`: Share of the positive relevance in a named region.
        `relevance/chance`: Annotated share of the area, the energy pointing game of a uniform map.
        `relevance/accuracy`, `relevance/samples`: Of the sample.
        `relevance/findings`: Number of findings that stand.
        `relevance/seconds`: Time the monitor took, less the logging.
        `relevance/cost_share`: Its share of the time since the epoch began.
        `relevance/failures`: Times the monitor failed so far.
    Pictures, texts, the table of samples and new findings go to `WandbLogger` and `TensorBoardLogger`, and always to
    `<default_root_dir>/relevance/<run>/`: `run.json`, `events.jsonl`, `findings.json`, `samples/*.parquet`, `pictures/`,
    `highlights/`.

    Args:
        max_samples: Size of the sample, in all processes together.
        every_n_epochs: Evaluate after every n-th training epoch.
        method: One of `lrptrain.methods()`.
        method_options: Of the method.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: Brings a batch of another form to the names above.
        class_names: In the order of the logits; else the datamodule's `class_names`, else numbers.
        region_names: For a `mask` `[B, K, H, W]` of named regions; the first is the evidence.
        bound: A finding is a mean share of relevance on the annotation that lies surely below this: a share in (0, 1), or
            "chance", the annotated area.
        confidence: Of intervals and findings.
        targets: Which classes to explain: "label", "predicted".
        batch_size: Samples per forward pass of the monitor, which needs the memory of training.
        max_pictures: Pictures or texts drawn per epoch.
        mean: Per channel, to undo the normalisation of images in pictures.
        std: Per channel, likewise.
        tokenizer: To name tokens: a tokenizer, its name or folder; else that of the datamodule or module.
        dataloader_idx: Which validation dataloader.
        on_error: "warn": a failure after the start is reported once, counted, and training goes on; "raise": it ends training.
        run_name: Folder under `relevance/`; else the time.
        seed: Of the sample.
        progress_bar: Show one while the monitor works.

    Raises:
        ValueError: At construction, `setup` or in the sanity check, with what to change; before the first training step.
    """

    def __init__(
        self,
        max_samples: int = 64,
        every_n_epochs: int = 1,
        method: str = "transformer_attribution",
        method_options: dict[str, Any] | None = None,
        model: str | None = None,
        batch_adapter: BatchAdapter | None = None,
        class_names: Sequence[str] | None = None,
        region_names: Sequence[str] = (),
        bound: float | Literal["chance"] = "chance",
        confidence: float = 0.95,
        targets: Sequence[str] = TARGETS,
        batch_size: int = 16,
        max_pictures: int = 16,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        tokenizer: Any = None,
        dataloader_idx: int = 0,
        on_error: Literal["warn", "raise"] = "warn",
        run_name: str | None = None,
        seed: int = 0,
        progress_bar: bool = True,
    ) -> None:
        super().__init__()
        get_method(method, method_options or {})
        _check_arguments(max_samples, every_n_epochs, batch_size, bound, confidence, targets, on_error)
        self.max_samples, self.every_n_epochs = max_samples, every_n_epochs
        self.explainer = Explainer(method, method_options or {}, tuple(targets), batch_size, tuple(region_names))
        self.model, self.batch_adapter = model, batch_adapter
        self.class_names, self.tokenizer = class_names, tokenizer
        self.bound, self.confidence = bound, confidence
        self.max_pictures, self.mean, self.std = max_pictures, mean, std
        self.dataloader_idx, self.on_error = dataloader_idx, on_error
        self.run_name, self.seed, self.progress_bar = run_name, seed, progress_bar
        self.findings: list[Finding] = []
        self.failures = 0
        self.folder: Path | None = None
        self.scored: list[Scored] = []
        self._start_over()

    @property
    def state_key(self) -> str:
        """Two monitors of different methods or models keep their own state."""
        return self._generate_state_key(method=self.explainer.method, model=self.model)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run continues: its folder and findings."""
        name = self.folder.name if self.folder is not None else None
        return {"run": name, "findings": [finding.to_dict() for finding in self.findings]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.run_name = self.run_name or state_dict["run"]
        self.folder = None
        self.findings = [Finding.from_dict(values) for values in state_dict["findings"]]

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse what cannot work, before anything is lost."""
        if stage not in ("fit", "validate"):
            return
        if "FSDP" in type(trainer.strategy).__name__ or "DeepSpeed" in type(trainer.strategy).__name__:
            raise ValueError(
                "RelevanceMonitor needs whole parameters; strategies that shard them are not supported: use DDP"
            )
        self._model = attach.find_model(pl_module, self.model)
        if self._model is not pl_module and trainer.is_global_zero:
            print(f"RelevanceMonitor explains {type(self._model).__name__} of {type(pl_module).__name__}")
        self._start_over()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the clock."""
        self._epoch_started = time.monotonic()

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Forget the scalars of the epoch before."""
        self._passed = 0
        self._fresh = False
        if self._epoch_started is None:
            self._epoch_started = time.monotonic()

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Let samples pass by; after the last batch, evaluate (before callbacks that swap weights for validation end)."""
        if dataloader_idx != self.dataloader_idx:
            return
        if trainer.sanity_checking:
            if batch_idx == 0:
                self._rehearse(trainer, pl_module, batch)
            return
        if self._samples is None:
            self._guarded("drawing the sample", lambda: self._collect(trainer, batch))
        if batch_idx + 1 == trainer.num_val_batches[self.dataloader_idx]:
            self._evaluate_if_due(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the scalars, so that checkpoints and early stopping can follow them."""
        if trainer.sanity_checking:
            return
        if not self._fresh and trainer.num_val_batches[self.dataloader_idx] == float("inf"):
            self._evaluate_if_due(trainer, pl_module)
        for key, value in self._scalars.items():
            # Between evaluations the last values stay visible to other callbacks, but make no new point in the logs.
            pl_module.log(key, value, logger=self._fresh and bool(trainer.loggers), rank_zero_only=False)

    def _start_over(self) -> None:
        self._keeper = SampleKeeper(self.max_samples, self.seed)
        self._samples: list[Sample] | None = None
        self._scalars: dict[str, float] = {}
        self._fresh = False
        self._passed = 0
        self._epoch_started: float | None = None

    def _rehearse(self, trainer: Any, pl_module: Any, batch: Any) -> None:
        """Explain one sample in the sanity check, where an error still costs nothing."""
        samples = [take(read_batch(batch, self.batch_adapter), 0, 0)]
        with preserved(pl_module):
            scored = list(self._explain(trainer, pl_module, samples))
            summary.scalars(scored, self._names(trainer, pl_module, scored))

    def _collect(self, trainer: Any, batch: Any) -> None:
        known = read_batch(batch, self.batch_adapter)
        rank, size = rank_and_size()
        indices = (self._passed + np.arange(batch_length(known))) * size + rank
        self._passed += batch_length(known)
        self._keeper.add(known, indices, (indices < _dataset_length(trainer, self.dataloader_idx)).tolist())

    def _evaluate_if_due(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "fit" and (trainer.current_epoch + 1) % self.every_n_epochs:
            return
        if self._samples is None:
            everywhere = gather((dict(self._keeper.counts), self._keeper.keys()))
            self._samples = self._keeper.choose(everywhere)
            self._keeper = SampleKeeper(self.max_samples, self.seed)
        with preserved(pl_module):
            self._evaluate(trainer, pl_module, self._samples)

    def _evaluate(self, trainer: Any, pl_module: Any, samples: list[Sample]) -> None:
        started = time.monotonic()
        mine: list[Scored] = []
        error = self._guarded(
            "computing relevance", lambda: mine.extend(self._explain(trainer, pl_module, samples, True))
        )
        parts = gather((mine, error))
        if any(failed for _, failed in parts):
            self._note_failure_elsewhere(error, parts)
            return
        scored = sorted(
            (one for part, _ in parts for one in part), key=lambda one: (one.sample.label, one.sample.sample_id)
        )
        self._guarded("scoring and logging", lambda: self._report(trainer, pl_module, scored, started))

    def _explain(self, trainer: Any, pl_module: Any, samples: list[Sample], bar: bool = False) -> list[Scored]:
        from tqdm.auto import tqdm

        shown = bar and self.progress_bar and trainer.is_global_zero and trainer.progress_bar_callback is not None
        progress = tqdm(total=len(samples), desc="Relevance", leave=False, disable=not shown)
        found = []
        context = trainer.precision_plugin.val_step_context
        with progress:
            for one in evaluate(self._model, samples, self.explainer, pl_module.device, context):
                found.append(one)
                progress.update()
        return found

    def _report(self, trainer: Any, pl_module: Any, scored: list[Scored], started: float) -> None:
        if not scored:
            raise ValueError("the validation set gave no samples")
        epoch, step = trainer.current_epoch, attach.logged_step(trainer)
        names = self._names(trainer, pl_module, scored)
        flagged = summary.findings(scored, names, bound=self.bound, confidence=self.confidence, epoch=epoch, step=step)
        self.findings, new = merge_findings(self.findings, flagged)
        self.scored = scored
        look = summary.Look(names, self._tokens(trainer, pl_module), self.mean, self.std, self.max_pictures)
        drawn = trainer.is_global_zero
        record = EpochRecord(
            epoch=epoch,
            step=step,
            samples=summary.table(scored, names),
            pictures=summary.pictures(scored, look) if drawn else [],
            texts=summary.highlights(scored, look) if drawn else [],
            findings=self.findings,
            new_findings=new,
            class_names=names,
            scalars=self._with_cost(summary.scalars(scored, names), started),
        )
        self._scalars, self._fresh = record.scalars, True
        if trainer.is_global_zero:
            write_record(self._run_folder(trainer, pl_module, names), record)
            for finding in new:
                print(finding, flush=True)
            send(trainer.loggers, record)

    def _with_cost(self, scalars: dict[str, float], started: float) -> dict[str, float]:
        now = time.monotonic()
        epoch = now - (self._epoch_started if self._epoch_started is not None else started)
        return scalars | {
            "relevance/findings": float(len(self.findings)),
            "relevance/seconds": now - started,
            "relevance/cost_share": (now - started) / max(epoch, 1e-9),
            "relevance/failures": float(self.failures),
        }

    def _names(self, trainer: Any, pl_module: Any, scored: list[Scored]) -> list[str]:
        classes = 1 + max(max(one.sample.label, one.predicted) for one in scored)
        return attach.find_class_names(self.class_names, (trainer.datamodule, pl_module), classes)

    def _tokens(self, trainer: Any, pl_module: Any) -> Callable[[list[int]], list[str]]:
        return attach.find_tokens(self.tokenizer, trainer.datamodule, pl_module)

    def _run_folder(self, trainer: Any, pl_module: Any, names: list[str]) -> Path:
        if self.folder is None:
            self.folder = attach.new_run_folder(trainer.default_root_dir, self.run_name)
            settings = {
                "method": self.explainer.method,
                "method_options": dict(self.explainer.options),
                "module": type(pl_module).__name__,
                "model": type(self._model).__name__,
                "bound": self.bound,
                "confidence": self.confidence,
                "class_names": names,
            }
            attach.write_settings(self.folder, settings)
        return self.folder

    def _guarded(self, doing: str, work: Callable[[], Any]) -> str:
        """Do something that must not end a training run; returns the failure, or nothing."""
        try:
            work()
        except Exception as error:
            if self.on_error == "raise":
                raise
            self._note_failure(f"{doing}: {type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}")
            return f"{type(error).__name__}: {error}"
        return ""

    def _note_failure_elsewhere(self, mine: str, parts: Sequence[tuple[Any, str]]) -> None:
        if not mine:
            self._note_failure(f"computing relevance in another process: {next(error for _, error in parts if error)}")

    def _note_failure(self, what: str) -> None:
        self.failures += 1
        self._scalars = {**self._scalars, "relevance/failures": float(self.failures)}
        if self.failures == 1:
            warnings.warn(f"RelevanceMonitor failed while {what}\nTraining goes on; this is said once.", stacklevel=2)


def _dataset_length(trainer: Any, dataloader_idx: int) -> float:
    """Samples of the validation set, to tell a distributed sampler's padding; unknown for streams."""
    loaders = trainer.val_dataloaders
    loader = loaders[dataloader_idx] if isinstance(loaders, (list, tuple)) else loaders
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError):
        return float("inf")


def _check_arguments(
    max_samples: int,
    every_n_epochs: int,
    batch_size: int,
    bound: float | str,
    confidence: float,
    targets: Sequence[str],
    on_error: str,
) -> None:
    for name, value in {"max_samples": max_samples, "every_n_epochs": every_n_epochs, "batch_size": batch_size}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    if bound != "chance" and not (isinstance(bound, (int, float)) and 0 < bound < 1):
        raise ValueError(f"bound must be 'chance' or a share between 0 and 1, not {bound!r}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    if not targets or not set(targets) <= set(TARGETS):
        raise ValueError(f"targets must be among {TARGETS}, not {targets!r}")
    if on_error not in ("warn", "raise"):
        raise ValueError(f"on_error must be 'warn' or 'raise', not {on_error!r}")
