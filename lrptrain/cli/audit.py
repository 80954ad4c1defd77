"""`lrptrain audit`: are maps faithful, by tests on a checkpoint and its data."""

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from lrptrain.auditing.audit import AUDITED_METHODS, audit_samples, check_arguments
from lrptrain.auditing.settings import AuditSettings
from lrptrain.cli.checkpoint import Checkpoint, read_checkpoint
from lrptrain.cli.datasets import (
    are_images,
    black_of,
    default_device,
    load_adapter,
    load_data,
    names_in,
    split_samples,
    training_samples,
)
from lrptrain.cli.modules import ModuleSource, load_model, module_source
from lrptrain.trainers.discover import find_model

DEFAULT_METHODS = ",".join(AUDITED_METHODS)
TIMED_STEPS = 2
"""Training steps that are timed to estimate how long a whole training takes."""


def audit_checkpoint(
    checkpoint: str,
    data: str | None = None,
    methods: str = DEFAULT_METHODS,
    budget: float = 900.0,
    tests: str | None = None,
    split: Literal["val", "test"] = "val",
    max_samples: int = 64,
    batch_size: int = 16,
    seed: int = 0,
    settings: AuditSettings = AuditSettings(),  # noqa: B008
    retrain_epochs: int = 0,
    output: str = "audit",
    module: str | None = None,
    model: str | None = None,
    batch_adapter: str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> None:
    """Is a map faithful on your model? Tests of every method, and a verdict: yes, weakly, no, or why it is not judged.

    Writes audit.md, results.json and pictures to a folder. What is measured is kept there: started again, an audit of
    the same checkpoint goes on with what is missing. Ctrl-C keeps what is done.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        data: package.DataModule, "package.DataModule(argument=value)", a loader, or a config of which the `data:`
            section is read; else the data that the checkpoint was trained with, where it says so.
        methods: Names of `lrptrain.methods()` separated by commas.
        budget: Seconds; tests that do not fit are left out, and named.
        tests: Names of those to run separated by commas; else all.
        split: The samples are drawn from the validation or the test set.
        max_samples: How many samples, as evenly over the classes as they allow; as many again are taken for training.
        batch_size: Samples per forward pass.
        seed: Seed of all that is drawn.
        settings: How much each test does.
        retrain_epochs: How long models of other seeds are trained; 0 leaves these out. Another number needs another
            --output.
        output: Folder to which the results are written, and from which an earlier audit is continued.
        module: package.Class of the LightningModule, "package.Class(argument=value)", or a config of which the `model:`
            section is read; else the checkpoint's own, or this project's for images and texts.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: package.function that brings a batch of another form to the names of the contract.
        device: "cpu", "cuda" ...; else the GPU if there is one.
        trust: Also load a checkpoint that holds objects of any class, whose making runs code that the file brings.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If a test is unknown, the data are not known, hold no sample, or a number is not positive.
    """
    if retrain_epochs < 0:
        raise ValueError(f"retrain_epochs must be 0 or more, not {retrain_epochs}")
    chosen = names_in(tests) if tests else None
    # Wrong names end the command before any data are loaded.
    names = check_arguments(names_in(methods), chosen, budget, max_samples, batch_size)
    saved = read_checkpoint(checkpoint, trust)
    source = load_data(saved, data)
    adapter = load_adapter(batch_adapter)
    samples = split_samples(source, split, max_samples, seed, adapter)
    network = load_model(saved, are_images(samples), module, model).to(default_device(device))
    options: dict[str, Any] = {"tests": chosen, "settings": settings, "seed": seed, "fill": black_of(source)}
    if retrain_epochs:
        if not hasattr(source, "train_dataloader"):
            raise ValueError("--retrain-epochs trains on the data: name a LightningDataModule in --data, not a loader")
        retrain = Retrain(module_source(module, saved, are_images(samples)), saved, source, retrain_epochs, model)
        options |= {"retrain": retrain, "retrain_seconds": retrain.seconds()}
    audit_samples(
        network,
        samples,
        training_samples(source, max_samples, seed, adapter),
        names,
        budget=budget,
        batch_size=batch_size,
        output=Path(output),
        verbose=True,
        **options,
    )


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
