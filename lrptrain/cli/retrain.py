"""Trainings of a checkpoint's module from other seeds, which an audit compares its maps with."""

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lrptrain.cli.checkpoint import Checkpoint
from lrptrain.cli.modules import ModuleSource
from lrptrain.trainers.discover import find_model

TIMED_STEPS = 2
"""Training steps that are timed to estimate how long a whole training takes."""


@dataclass(frozen=True)
class Retrain:
    """Trains a checkpoint's module anew: its class, made from its hyper-parameters, fitted with its data.

    Attributes:
        source: How the module is made.
        checkpoint: The checkpoint that has the hyper-parameters.
        datamodule: Training data.
        epochs: Epochs of each training.
        model: Attribute path of the model on the LightningModule; None to find it.
    """

    source: ModuleSource
    checkpoint: Checkpoint
    datamodule: Any
    epochs: int
    model: str | None = None

    def __call__(self, seed: int) -> nn.Module:
        """Return the model trained with a seed, in evaluation mode."""
        return self._fit(seed, max_epochs=self.epochs)

    def seconds(self) -> float:
        """Return about how many seconds a training takes, measured on a few steps."""
        started = time.monotonic()
        self._fit(0, max_steps=TIMED_STEPS)
        # The time includes the start of the trainer: an estimate that is rather too long keeps within the budget.
        steps = len(self.datamodule.train_dataloader()) * self.epochs
        return (time.monotonic() - started) * max(steps / TIMED_STEPS, 1.0)

    def _fit(self, seed: int, **limits: Any) -> nn.Module:
        import pytorch_lightning as pl

        # The draws of the audit must not depend on how many models were trained.
        with torch.random.fork_rng(), _quiet():
            torch.manual_seed(seed)
            module = self.source.make(self.checkpoint)
            # A training for a number leaves no files and prints nothing.
            switches: dict[str, Any] = dict.fromkeys(
                ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
            )
            trainer = pl.Trainer(limit_val_batches=0, num_sanity_val_steps=0, **switches, **limits)
            trainer.fit(module, datamodule=self.datamodule)
        return find_model(module, self.model).eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Lightning logs and warns of every trainer."""
    # Messages of rank 0 have a logger of their own, which may have another level than the package's.
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
