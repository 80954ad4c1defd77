"""A training under the monitor, plain or guided, and what the monitor said of it."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
from torch.utils.data import DataLoader

from experiments.records import named
from lrptrain.callbacks import RelevanceGuidance, RelevanceMonitor
from lrptrain.findings import Finding

PLAIN, SWAP = "plain", "swap"


class Watched(NamedTuple):
    """What a training came to.

    Attributes:
        record: Processor seconds of all of it, the last numbers of the monitor, and what it names, as results keep it.
        findings: The monitor's, as guidance takes them.
    """

    record: dict[str, Any]
    findings: list[Finding]


def guidance_of(arm: str) -> RelevanceGuidance | None:
    """By the annotations if the arm is `SWAP`; any other is trained as it is."""
    return RelevanceGuidance(loss="swap") if arm == SWAP else None


def watched(
    module: pl.LightningModule,
    loaders: tuple[DataLoader, DataLoader],
    guidance: RelevanceGuidance | None,
    epochs: int,
    evaluations: int,
    folder: Path,
    **options: Any,
) -> Watched:
    """Train a module on the first loader, watched on the second one.

    Args:
        module: Is trained in place.
        loaders: Of training and of the monitor.
        guidance: Of the training, if any.
        epochs: Of the training.
        evaluations: Of the monitor, the last one after the last epoch.
        folder: For what Lightning writes.
        **options: Of the monitor.
    """
    monitor = RelevanceMonitor(budget=None, **options)
    callbacks: list[pl.Callback] = [monitor]
    if guidance is not None:
        callbacks.append(guidance)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
        check_val_every_n_epoch=epochs // evaluations,
        num_sanity_val_steps=0,
    )
    started = time.process_time()
    trainer.fit(module, *loaders)
    record = {
        "seconds": time.process_time() - started,
        "monitor": {name: float(value) for name, value in trainer.callback_metrics.items() if "relevance" in name},
        "named": named(monitor.findings),
    }
    return Watched(record, monitor.findings)
