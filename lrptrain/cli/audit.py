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

from lrptrain.auditing import AuditResult, AuditSettings, UnitResult, run_audit
from lrptrain.auditing.base import select_tests
from lrptrain.auditing.report import markdown, write_audit_report
from lrptrain.batch import batched
from lrptrain.cli.loading import (
    are_images,
    black_of,
    default_device,
    draw_samples,
    load_data,
    load_model,
    module_class,
    module_path,
    module_settings,
    names_in,
    training_samples,
)
from lrptrain.relevance.registry import get_method
from lrptrain.trainers.checks import check_counts
from lrptrain.trainers.discover import find_model

DEFAULT_METHODS = "raw_attention,rollout,generic_attention,transformer_attribution,attnlrp,input_x_gradient,random"
TIMED_STEPS = 2
"""Training steps that are timed to estimate how long a whole training takes."""


def audit(
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
    device: str | None = None,
) -> None:
    """Is a map faithful on your model? Tests of every method, and a verdict: yes, weakly, no, or why it is not judged.

    Writes audit.md, results.json and pictures to a folder. What is measured is kept there: started again, an audit of
    the same checkpoint goes on with what is missing. Ctrl-C keeps what is done.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        data: A config of `lrptrain fit`, of which the `data:` section is read; else the data that the checkpoint was
            trained with, where it says so.
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
        module: Dotted path of the LightningModule's class; else the checkpoint's own, or this project's for images and
            texts.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        device: "cpu", "cuda" ...; else the GPU if there is one.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If a test is unknown, the data are not known, hold no sample, or a number is not positive.
    """
    check_counts(max_samples=max_samples, batch_size=batch_size, seeds=settings.seeds)
    if budget <= 0 or retrain_epochs < 0:
        raise ValueError(f"budget must be positive and retrain_epochs 0 or more, not {budget} and {retrain_epochs}")
    chosen = names_in(tests) if tests else None
    select_tests(chosen)  # wrong names of tests, or of methods, end the command before any data is loaded
    # Wrong names end the audit here, not after minutes of work.
    names = [get_method(name.strip(), {}).name for name in methods.split(",")]
    datamodule = load_data(checkpoint, data)
    samples = draw_samples(datamodule, split, max_samples, seed)
    folder = Path(output)
    where = default_device(device)
    network = load_model(checkpoint, are_images(samples), module, model).to(where)
    # The same options are used twice: for the audit, and after Ctrl-C to read what it has measured.
    options: dict[str, Any] = {
        "folder": folder,
        "tests": chosen,
        "fill": black_of(datamodule),
        "train_batches": batched(training_samples(datamodule, max_samples, seed), batch_size, where),
        "settings": settings,
        "seed": seed,
    }
    if retrain_epochs:
        path = module or module_path(checkpoint, are_images(samples))
        retrain = Retrain(path, checkpoint, datamodule, retrain_epochs, model)
        options |= {"retrain": retrain, "retrain_seconds": retrain.seconds()}
    batches = batched(samples, batch_size, where)
    try:
        result = run_audit(network, batches, names, budget=budget, progress=_print_unit, **options)
    except KeyboardInterrupt:
        # Every unit was saved when it was done: with no budget left, the result is read from the folder.
        print("\nstopped: what is done is kept\n", flush=True)
        result = run_audit(network, batches, names, budget=0, **options)
    _print_result(result, folder)


def _print_result(result: AuditResult, folder: Path) -> None:
    """Print an audit and save it."""
    write_audit_report(result, folder)
    print(f"\n{markdown(result)}\n{folder / 'audit.md'}\n{folder / 'results.json'}", flush=True)


@dataclass(frozen=True)
class Retrain:
    """Trains a checkpoint's module anew: its class, made from its hyper-parameters, fitted with its data.

    Attributes:
        path: Dotted path of the class.
        checkpoint: Path of the checkpoint that has the hyper-parameters.
        datamodule: Training data.
        epochs: Epochs of each training.
        model: Attribute path of the model on the LightningModule; None to find it.
    """

    path: str
    checkpoint: str
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

        # Settings that begin with "_" are Lightning's own, such as `_class_path`.
        saved = module_settings(self.checkpoint)
        arguments = {name: value for name, value in saved.items() if not name.startswith("_")}
        # The draws of the audit must not depend on how many models were trained.
        with torch.random.fork_rng(), _quiet():
            torch.manual_seed(seed)
            module = module_class(self.path)(**arguments)
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


def _print_unit(unit: UnitResult) -> None:
    print(f"{unit.title:44} {unit.problem or f'{unit.seconds:.1f} s'}", flush=True)
