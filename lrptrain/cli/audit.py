"""Audit methods on a checkpoint and its data, from the command line."""

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from lrptrain.audit import AuditResult, AuditSettings, UnitResult, run_audit
from lrptrain.audit.base import select_tests
from lrptrain.audit.report import markdown, write_report
from lrptrain.batch import Sample, batch_length, batched, read_batch, take
from lrptrain.cli.attribute import load_module
from lrptrain.cli.compare import draw, fill_of, load_data, module_path
from lrptrain.relevance.registry import get_method
from lrptrain.trainers.checks import check_counts

METHODS = "raw_attention,rollout,generic_attention,transformer_attribution,attnlrp,input_x_gradient,random"
TIMED_STEPS = 2
"""Training steps that tell how long training anew takes."""


def audit(
    checkpoint: str,
    data: str | None = None,
    methods: str = METHODS,
    budget: float = 900.0,
    tests: str | None = None,
    split: Literal["val", "test"] = "val",
    limit: int = 64,
    batch_size: int = 16,
    seed: int = 0,
    settings: AuditSettings = AuditSettings(),  # noqa: B008
    retrain_epochs: int = 0,
    folder: str = "audit",
    module: str | None = None,
    device: str | None = None,
) -> None:
    """Is a map faithful on your model? Tests of every method, and a verdict: yes, weakly, no, or why it is not judged.

    Writes audit.md, results.json and pictures to a folder. What is measured is kept there: started again, an audit of
    the same checkpoint goes on with what is missing. Ctrl-C keeps what is done.

    Args:
        checkpoint: Of `lrptrain fit`, or of any LightningModule named by --module.
        data: A config of `lrptrain fit`, of which the `data:` section is read; else the data that the checkpoint was
            trained with, where it says so.
        methods: Names of `lrptrain.methods()` separated by commas.
        budget: Seconds; tests that do not fit are left out, and named.
        tests: Names of those to run separated by commas; else all.
        split: The samples are drawn from the validation or the test set.
        limit: How many samples, as evenly over the classes as they allow; as many again are taken for training.
        batch_size: Samples per forward pass.
        seed: Of all that is drawn.
        settings: How much each test does.
        retrain_epochs: How long models of other seeds are trained; 0 leaves these out. Another number needs another
            folder.
        folder: Of the results.
        module: Dotted path of the LightningModule; else the checkpoint's own, or this project's for images and texts.
        device: "cpu", "cuda" ...; else the GPU if there is one.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If a test is unknown, the data are not known, hold no sample, or a number is not positive.
    """
    check_counts(limit=limit, batch_size=batch_size, seeds=settings.seeds)
    if budget <= 0 or retrain_epochs < 0:
        raise ValueError(f"budget must be positive and retrain_epochs 0 or more, not {budget} and {retrain_epochs}")
    chosen = [name.strip() for name in tests.split(",")] if tests else None
    select_tests(chosen)
    names = [get_method(name.strip(), {}).name for name in methods.split(",")]
    datamodule = load_data(checkpoint, data)
    samples, own = draw(datamodule, split, limit, seed), Path(folder)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    path = module or module_path(checkpoint, samples)
    model = load_module(path, checkpoint).to(where)
    given: dict[str, Any] = {
        "folder": own,
        "tests": chosen,
        "fill": fill_of(datamodule),
        "train_batches": batched(training_samples(datamodule, limit, seed), batch_size, where),
        "settings": settings,
        "seed": seed,
    }
    if retrain_epochs:
        retrain = Retrain(path, checkpoint, datamodule, retrain_epochs)
        given |= {"retrain": retrain, "retrain_seconds": retrain.seconds()}
    batches = batched(samples, batch_size, where)
    try:
        result = run_audit(model, batches, names, budget=budget, progress=_tell, **given)
    except KeyboardInterrupt:
        print("\nstopped: what is done is kept\n", flush=True)
        result = run_audit(model, batches, names, budget=0, **given)
    report(result, own)


def report(result: AuditResult, folder: Path) -> None:
    """Print an audit and save it."""
    write_report(result, folder)
    print(f"\n{markdown(result)}\n{folder / 'audit.md'}\n{folder / 'results.json'}", flush=True)


def training_samples(datamodule: Any, limit: int, seed: int) -> list[Sample]:
    """The first samples that a datamodule's training loader gives, which the seed of its shuffling fixes."""
    datamodule.setup("fit")
    samples: list[Sample] = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for batch in datamodule.train_dataloader():
            known = read_batch(batch)
            samples += [take(known, row, len(samples) + row) for row in range(batch_length(known))]
            if len(samples) >= limit:
                break
    return samples[:limit]


@dataclass(frozen=True)
class Retrain:
    """Trains a checkpoint's module anew: its class, made from its hyper-parameters, fitted with its data.

    Attributes:
        path: Dotted path of the class.
        checkpoint: That knows the hyper-parameters.
        datamodule: Of the training.
        epochs: Of each training.
    """

    path: str
    checkpoint: str
    datamodule: Any
    epochs: int

    def __call__(self, seed: int) -> nn.Module:
        """The module of a seed, in evaluation mode."""
        return self._fit(seed, max_epochs=self.epochs)

    def seconds(self) -> float:
        """About how long one takes, by a few steps."""
        started = time.monotonic()
        self._fit(0, max_steps=TIMED_STEPS)
        steps = len(self.datamodule.train_dataloader()) * self.epochs
        return (time.monotonic() - started) * max(steps / TIMED_STEPS, 1.0)

    def _fit(self, seed: int, **limits: Any) -> nn.Module:
        import pytorch_lightning as pl

        saved = torch.load(self.checkpoint, map_location="cpu", weights_only=False).get("hyper_parameters", {})
        arguments = {name: value for name, value in saved.items() if not name.startswith("_")}
        package, _, name = self.path.rpartition(".")
        with torch.random.fork_rng(), _quiet():
            torch.manual_seed(seed)
            module = getattr(import_module(package), name)(**arguments)
            switches: dict[str, Any] = dict.fromkeys(
                ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
            )
            trainer = pl.Trainer(limit_val_batches=0, num_sanity_val_steps=0, **switches, **limits)
            trainer.fit(module, datamodule=self.datamodule)
        return module.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Lightning tells of every trainer."""
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


def _tell(unit: UnitResult) -> None:
    print(f"{unit.title:44} {unit.problem or f'{unit.seconds:.1f} s'}", flush=True)
