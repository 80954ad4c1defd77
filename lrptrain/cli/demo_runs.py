"""The two runs of the demo, and what came out of them side by side."""

import logging
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.callbacks import TQDMProgressBar

from lrptrain.callbacks import RelevanceGuidance, RelevanceMonitor
from lrptrain.data import PlantedDigits
from lrptrain.findings import Finding, announce, reliance
from lrptrain.loggers import read_events
from lrptrain.loggers.wandb import logged_in
from lrptrain.models import ImageClassifier
from lrptrain.monitor.config import Run
from lrptrain.monitor.display import choose_displayed
from lrptrain.monitor.evaluation import ExplainedSample
from lrptrain.render import contact_sheet, overlay, to_picture
from lrptrain.trainers.progress import shows_progress

VIT = {"img_size": 24, "patch_size": 6, "embed_dim": 64, "depth": 4, "num_heads": 4}
GUIDANCE_OPTIONS: dict[str, Any] = {"loss": "consistency", "weight": 10.0}
"""What works from random weights in so few epochs: by "swap" alone 64 % are right after 7 epochs, 76 % after 14, or the
training stays at guessing, by the seed and the number of threads."""
FOCUS = "relevance/label/energy_pointing_game"
CHANCE = "relevance/chance"


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        trained: Accuracy on validation images with the tag, 0..1.
        clean: Accuracy on the same images without it.
        seconds: Time taken.
        events: Evaluations, as `read_events` returns them.
        scored: The monitor's last evaluation.
        folder: Folder of the monitor's files.
    """

    trained: float
    clean: float
    seconds: float
    events: list[dict[str, Any]]
    scored: list[ExplainedSample]
    folder: Path


def train(data: PlantedDigits, folder: Path, guided: bool, epochs: int, max_samples: int, seed: int) -> Outcome:
    """Train, test on the images without the tag, and keep the model."""
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    pl.seed_everything(seed, verbose=False)
    module = ImageClassifier(num_classes=data.num_classes, model="vit_tiny_patch16_224", model_kwargs=VIT, lr=2e-3)
    # The first epoch, the last one, and one between: each takes as long as an epoch.
    monitor = RelevanceMonitor(max_samples=max_samples, budget=None, run=Run(every_n_epochs=max(1, (epochs - 1) // 2)))
    attached: list[pl.Callback] = [monitor, RelevanceGuidance(**GUIDANCE_OPTIONS)] if guided else [monitor]
    logger = _wandb(folder)
    # Rich's bar, Lightning's choice where it is installed, wraps its numbers over several lines of 80 columns.
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        logger=logger,
        callbacks=[*attached, TQDMProgressBar() if shows_progress() else Lines(started)],
        enable_progress_bar=shows_progress(),
        enable_checkpointing=False,
        enable_model_summary=False,
        log_every_n_steps=10,
    )
    trainer.fit(module, datamodule=data)
    trained = float(trainer.callback_metrics["val/accuracy"])
    # The last validation logged the accuracy with the tag; the test images are the same digits without it.
    (tested,) = trainer.test(module, datamodule=data, verbose=False)
    trainer.save_checkpoint(folder / "model.ckpt")
    if logger:
        logger.experiment.finish()
    assert monitor.folder is not None
    return Outcome(
        trained=trained,
        clean=tested["test/accuracy"],
        seconds=time.monotonic() - started,
        events=read_events(monitor.folder),
        scored=monitor.scored,
        folder=monitor.folder,
    )


class Lines(pl.Callback):
    """Prints a line of progress after every epoch that ends `SECONDS` or more after the last line: for a log file."""

    SECONDS = 4.0

    def __init__(self, started: float) -> None:
        self._started = self._said = started

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """See the class."""
        now = time.monotonic()
        if now - self._said >= self.SECONDS and not trainer.sanity_checking:
            self._said = now
            epoch, accuracy = trainer.current_epoch + 1, float(trainer.callback_metrics["val/accuracy"])
            seconds = f"{now - self._started:.0f} s"
            print(
                f"  epoch {epoch} of {trainer.max_epochs}: {accuracy:.0%} correct with the tag, {seconds}", flush=True
            )


def compare_outcomes(plain: Outcome, guided: Outcome) -> str:
    """What happened, side by side, in words and numbers."""
    both = (plain, guided)
    last = [outcome.events[-1]["scalars"] for outcome in both]
    seconds = [sum(event["scalars"]["relevance/seconds"] for event in outcome.events) for outcome in both]
    lines = [
        _row("", ["plain", "guided"]),
        _row("accuracy with the tag (validation)", [f"{outcome.trained:.1%}" for outcome in both]),
        _row("accuracy without the tag, same digits", [f"{outcome.clean:.1%}" for outcome in both])
        + "   (guessing: 10 %)",
        _row("relevance on the digit", [f"{values[FOCUS]:.0%}" for values in last])
        + f"   (area: {last[0][CHANCE]:.0%})",
        _row("time", [f"{outcome.seconds:.0f} s" for outcome in both]),
        _row(
            "the monitor's share of that",
            [f"{spent / outcome.seconds:.0%}" for spent, outcome in zip(seconds, both, strict=True)],
        )
        + "   (no budget)",
        "",
    ]
    return "\n".join([*lines, _verdict("plain", plain), "", _verdict("guided", guided)])


def _row(name: str, values: list[str]) -> str:
    return f"{name:<38}" + "".join(f"{value:>9}" for value in values)


def _verdict(name: str, outcome: Outcome) -> str:
    """When the monitor was sure of a run, and what it last said."""
    # For example flagged in epochs [2, 3, 4], and no longer in 5.
    since = [event["epoch"] for event in outcome.events if _faults(event)]
    if not since:
        return f"{name}: the monitor found no shortcut."
    text = f"{name}: the monitor flagged the model in epoch {since[0]}"
    last = _faults(outcome.events[-1])
    if not last:
        back = next(event["epoch"] for event in outcome.events if event["epoch"] > since[-1])
        return f"{text}, and took the flag back in epoch {back}."
    worst = max(last, key=lambda finding: reliance([finding]))
    return f"{text}. The flag as it stands:\n\n{announce([worst], outcome.folder.parent.parent)[0]}"


def _faults(event: dict[str, Any]) -> list[Finding]:
    findings = [Finding.from_dict(values) for values in event["findings"]]
    return [finding for finding in findings if finding.is_fault]


def write_overlays(
    plain: list[ExplainedSample], guided: list[ExplainedSample], data: PlantedDigits, path: Path, most: int = 8
) -> Path:
    """Write a sheet of images, each beside its relevance in both runs with the digit outlined."""
    from PIL import Image

    cells: list[np.ndarray] = []
    captions: list[str] = []
    # Both runs drew the same samples, by the same seed: they are paired by id.
    others = {explained.sample.sample_id: explained for explained in guided}
    for explained in choose_displayed(plain, most):
        pair = (explained, others[explained.sample.sample_id])
        sample = data.splits["val"][explained.sample.sample_id]
        maps = [overlay(sample["image"], x.maps["label"].unflatten(0, x.grid or ()), sample["mask"]) for x in pair]
        # Side by side: the image, its map in the plain run, and its map in the guided one.
        cells.append(np.concatenate([to_picture(sample["image"]), *maps], axis=1))
        plain_class, guided_class = (data.class_names[x.predicted] for x in pair)
        digit = data.class_names[explained.sample.label]
        captions.append(f"Digit {digit}: plain model {plain_class}, guided {guided_class}")
    Image.fromarray(contact_sheet(cells, captions, columns=2)).save(path)
    return path


def _wandb(folder: Path) -> Any:
    """A W&B logger, offline and silent where nobody is logged in; without the package, none."""
    # Read when W&B is imported, and when it starts again: its settings below come too late for what it says of itself.
    os.environ.setdefault("WANDB_SILENT", "true")
    try:
        online = logged_in()
    except ImportError:
        return False
    import wandb
    from pytorch_lightning.loggers import WandbLogger

    # Offline there is no address to say, and sixty lines of summary would stand between the runs and the result.
    settings = wandb.Settings(silent=not online)
    return WandbLogger(folder.name, save_dir=folder, offline=not online, project="lrptrain-demo", settings=settings)


def quiet() -> None:
    """Keep the output to what the demo has to say: what its monitors found, its last lines tell."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
