"""One training run under six monitors, and what is kept of it."""

import io
import logging
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from types import ModuleType
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from experiments.detection import images, texts
from experiments.detection.cases import Case
from lrptrain.callbacks import RelevanceMonitor
from lrptrain.findings import Finding, unfold
from lrptrain.models.classifier import Classifier

TASKS: dict[str, ModuleType] = {"images": images, "texts": texts}
MAPS = ("transformer_attribution", "raw_attention", "rollout")
ANNOTATED, BARE = "annotated", "without annotations"
MONITORS = {f"{kind} {method}": (kind, method) for kind in (ANNOTATED, BARE) for method in MAPS}
"""Kind and method by name."""
DEFAULT_MONITORS = {f"{BARE} by default": (BARE, None)}
"""One that is told neither annotations nor a method."""
CONSTANTS = {"max_samples": 128, "budget": None, "intervention": "swap", "min_effect": 0.05, "confidence": 0.95}
"""Of every monitor; with those that are the monitor's own, all that decides about a finding."""
FOCUS = "label/energy_pointing_game"
Row = dict[str, Any]
Wanted = Mapping[str, tuple[str, str | None]]


def unannotated(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The batch without what people marked."""
    return {name: value for name, value in batch.items() if name not in ("mask", "rationale")}


def monitors(case: Case, wanted: Wanted) -> list[RelevanceMonitor]:
    """All that are wanted, on one sample; a failure ends the run."""
    look = TASKS[case.task].look()
    shared = {**CONSTANTS, **look, "seed": case.seed, "max_pictures": 0, "progress_bar": False, "on_error": "raise"}
    adapters = {ANNOTATED: None, BARE: unannotated}
    return [
        RelevanceMonitor(method=method, name=name.replace(" ", "_"), batch_adapter=adapters[kind], **shared)
        for name, (kind, method) in wanted.items()
    ]


class Diary(pl.Callback):
    """Keeps, after every validation, what the monitors found and which held-out samples the model reads rightly.

    Args:
        shown: Held-out samples with the shortcut.
        clean: The same without it.
        watched: The monitors by name; they come before this callback.

    Attributes:
        epochs: A row each.
    """

    def __init__(self, shown: DataLoader, clean: DataLoader, watched: Mapping[str, RelevanceMonitor]) -> None:
        self.shown, self.clean, self.watched = shown, clean, watched
        self.epochs: list[Row] = []

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Add a row."""
        assert isinstance(pl_module, Classifier)
        with_cue, clean = right(pl_module, self.shown), right(pl_module, self.clean)
        row = {"accuracy": with_cue.mean(), "accuracy without": clean.mean()}
        row |= {"lost": int((with_cue & ~clean).sum()), "won": int((clean & ~with_cue).sum()), "samples": len(with_cue)}
        row["monitors"] = {name: noted(each) for name, each in self.watched.items()}
        self.epochs.append(rounded(row))


@torch.no_grad()
def right(module: Classifier, loader: DataLoader) -> np.ndarray:
    """Which samples are read rightly."""
    are_right = []
    for batch in loader:
        logits = module(**{name: batch[name] for name in module.batch_keys})
        are_right.append(logits.argmax(1) == batch["label"])
    return torch.cat(are_right).numpy()


def noted(monitor: RelevanceMonitor) -> Row:
    """What a monitor confirmed and, with annotations, the mean share of relevance on them beside a uniform map's."""
    row: Row = {"findings": [brief(finding) for finding in unfold(monitor.findings) if finding.state == "confirmed"]}
    shares = [(each.values[FOCUS], each.chance) for each in monitor.scored if FOCUS in each.values]
    if shares:
        row["EPG"], row["chance"] = np.nanmean(shares, 0).tolist()
    return row


def brief(finding: Finding) -> Row:
    """What is kept of it."""
    names = ("kind", "scope", "where", "target", "effect", "p_value", "severity")
    values = finding.to_dict()
    return {name: values[name] for name in (*names, "interval")}


def rounded(value: Any, digits: int = 4) -> Any:
    """Plain numbers of so many significant digits, all the way down."""
    if isinstance(value, dict):
        return {name: rounded(each, digits) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each, digits) for each in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def train_by_default(case: Case) -> Row:
    """One run under the monitor that is told neither annotations nor a method."""
    return train(case, DEFAULT_MONITORS)


def train(case: Case, wanted: Wanted = MONITORS) -> Row:
    """One run, on one core."""
    quiet()
    task = TASKS[case.task]
    started = time.monotonic()
    pl.seed_everything(case.seed, verbose=False)
    first, with_cue, clean = task.loaders(case)
    watched = dict(zip(wanted, monitors(case, wanted), strict=True))
    diary = Diary(with_cue, clean, watched)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=task.EPOCHS,
            limit_train_batches=task.STEPS,
            gradient_clip_val=1.0,
            accelerator="cpu",
            callbacks=[*watched.values(), diary],
            default_root_dir=folder,
            num_sanity_val_steps=0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        with redirect_stdout(io.StringIO()):
            trainer.fit(task.module(), first, with_cue)
    run = {"task": case.task, "shortcut": case.shortcut, "correlation": case.correlation, "seed": case.seed}
    return {**run, "seconds": round(time.monotonic() - started, 1), "epochs": diary.epochs}


def quiet() -> None:
    """One thread, and no word of Lightning's."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
