"""A ViT learns to read a coloured tag instead of the digit, and the monitor says so. Nothing to download."""

import logging
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl

from lrptrain.callbacks import RelevanceMonitor
from lrptrain.data import PlantedDigits
from lrptrain.findings import Finding
from lrptrain.findings.finding import OVERALL
from lrptrain.loggers import read_events
from lrptrain.loggers.wandb import logged_in
from lrptrain.models import ImageClassifier
from lrptrain.monitoring.drawing import caption, shown_first
from lrptrain.monitoring.evaluate import Scored
from lrptrain.render import contact_sheet, overlay, to_picture

VIT = {"img_size": 32, "patch_size": 4, "embed_dim": 64, "depth": 4, "num_heads": 4}


def demo(output: str = "runs/demo", epochs: int = 6, samples: int = 100, images: int = 4800, seed: int = 0) -> None:
    """Fine-tune a small ViT on digits with a planted tag, under the monitor.

    Args:
        output: Folder for the run, the W&B files (offline unless you are logged in) and the picture.
        epochs: Training epochs.
        samples: Size of the monitored sample.
        images: Training images.
        seed: Of data, weights and sample.
    """
    _quiet()
    started = time.monotonic()
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    pl.seed_everything(seed, verbose=False)
    data = PlantedDigits(shortcut="tag", correlation=1.0, train_size=images, batch_size=64, seed=seed)
    module = ImageClassifier(num_classes=data.num_classes, model="vit_tiny_patch16_224", model_kwargs=VIT, lr=2e-3)
    monitor = RelevanceMonitor(max_samples=samples)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        logger=_wandb(folder),
        callbacks=[monitor],
        enable_checkpointing=False,
        enable_model_summary=False,
        log_every_n_steps=10,
    )
    print(
        "A small ViT learns handwritten digits. Each training image also carries a 4 x 4 tag in its class's colour.\n"
    )
    trainer.fit(module, datamodule=data)
    trained = float(trainer.callback_metrics["val/accuracy"])
    (tested,) = trainer.test(module, datamodule=data, verbose=False)
    trainer.save_checkpoint(folder / "model.ckpt")
    assert monitor.folder is not None
    picture = draw(monitor.scored, data, folder / "overlays.png")
    text = report(read_events(monitor.folder), trained, tested["test/accuracy"], time.monotonic() - started)
    (folder / "report.txt").write_text(text + "\n", encoding="utf-8")
    print(f"\n{text}\n\npicture    {picture}\nrun        {monitor.folder}\ncheckpoint {folder / 'model.ckpt'}")


def report(events: list[dict[str, Any]], trained: float, clean: float, seconds: float) -> str:
    """What happened, in words and numbers.

    Args:
        events: As `read_events` gives them.
        trained: Accuracy on validation images with the tag.
        clean: Accuracy on the same images without it.
        seconds: Time taken in all.
    """
    cost = np.mean([event["scalars"]["relevance/cost_share"] for event in events])
    lines = [
        f"accuracy with the tag (validation)     {trained:6.1%}",
        f"accuracy without the tag, same digits  {clean:6.1%}   (guessing: 10 %)",
        f"time                                   {seconds:4.0f} s   (the monitor: {cost:.0%} of an epoch)",
        "",
        *map(_epoch_line, events),
        "",
    ]
    since = [event for event in events if _overall(event)]
    if not since:
        return "\n".join([*lines, "The monitor flagged nothing overall."])
    lines.append(f"The monitor flagged the model in epoch {since[0]['epoch']}. The flag as it last stood:")
    return "\n".join([*lines, str(Finding.from_dict(_overall(since[-1])[0]))])


def _epoch_line(event: dict[str, Any]) -> str:
    values = event["scalars"]
    flag = "flagged" if _overall(event) else ""
    return (
        f"epoch {event['epoch']}: sample read right {values['relevance/accuracy']:4.0%}, relevance on the digit "
        f"{values['relevance/label/energy_pointing_game']:4.0%} of {values['relevance/chance']:.0%} by area  {flag}"
    ).rstrip()


def _overall(event: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in event["findings"] if finding["scope"] == OVERALL]


def draw(scored: list[Scored], data: PlantedDigits, path: Path, most: int = 8) -> Path:
    """Write a sheet of images, each beside its relevance with the digit outlined."""
    from PIL import Image

    cells, captions = [], []
    for one in shown_first(scored, most):
        sample = data.splits["val"][one.sample.sample_id]
        assert one.grid is not None
        heat = one.maps["label"].unflatten(0, one.grid)
        image = sample["image"]
        cells.append(np.concatenate([to_picture(image), overlay(image, heat, sample["mask"])], axis=1))
        captions.append(caption(one, data.class_names))
    Image.fromarray(contact_sheet(cells, captions, columns=2)).save(path)
    return path


def _wandb(folder: Path) -> Any:
    """A W&B logger, offline where nobody is logged in; without the package, none."""
    try:
        online = logged_in()
    except ImportError:
        return False
    from pytorch_lightning.loggers import WandbLogger

    return WandbLogger(project="lrptrain-demo", save_dir=folder, offline=not online)


def _quiet() -> None:
    """Keep the demo's output to what it has to say."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
