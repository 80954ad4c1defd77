"""Fine-tune MiniLM on tweets, then on the training documents; the checkpoint is chosen on the validation documents."""

import json
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from scipy import stats

from experiments.data import dataset
from experiments.records import save
from lrptrain.data import EraserDocuments, TextSpans
from lrptrain.models import TextClassifier

MAX_LENGTH = 512
TWEETS = {"limit": 4200, "val_share": 1000 / 4200, "max_length": 64, "batch_size": 32}
SETTINGS = {"tweets_lr": 3e-4, "documents_lr": 1e-4, "epochs": 1, "batch_size": 8, "gradient_clip": 1.0}


def train(seed: int, data: EraserDocuments, tweets: Path, folder: Path) -> dict[str, Any]:
    """Train with one seed, keep the better of two checks on the validation documents, and test it.

    From MiniLM's own weights one epoch of the documents teaches nothing (accuracy 51 %); 100 steps on tweets first do.
    """
    pl.seed_everything(seed, verbose=False)
    started = time.monotonic()
    # Dropout of the attention probabilities would keep PyTorch from its fused attention, at half of the speed.
    options = {"attention_probs_dropout_prob": 0.0}
    module = TextClassifier(num_classes=2, lr=SETTINGS["tweets_lr"], model_kwargs=options)
    short = TextSpans(str(tweets), label_column="sentiment", labels=["negative", "positive"], seed=seed, **TWEETS)
    first = _trainer(folder)
    first.fit(module, datamodule=short)
    module.lr = SETTINGS["documents_lr"]
    best = ModelCheckpoint(
        folder, "best", monitor="val/accuracy", mode="max", save_weights_only=True, enable_version_counter=False
    )
    _trainer(folder, val_check_interval=0.5, callbacks=[best]).fit(module, datamodule=data)
    return {
        "seed": seed,
        **SETTINGS,
        "seconds": time.monotonic() - started,
        "tweets_accuracy": float(first.callback_metrics["val/accuracy"]),
        "validation_accuracy": float(best.best_model_score),
        "step": int(torch.load(best.best_model_path, weights_only=False)["global_step"]),
        **tested(load(folder), data),
    }


def _trainer(folder: Path, **options: Any) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=SETTINGS["epochs"],
        precision="bf16-mixed",
        gradient_clip_val=SETTINGS["gradient_clip"],
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_checkpointing="callbacks" in options,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **options,
    )


def load(folder: Path) -> TextClassifier:
    """The chosen checkpoint, in evaluation mode."""
    return TextClassifier.load_from_checkpoint(folder / "best.ckpt", map_location="cpu").eval()


@torch.no_grad()
def tested(module: TextClassifier, data: EraserDocuments) -> dict[str, Any]:
    """How many test documents are read right, in float32."""
    right = [
        bool(hit)
        for batch in data.test_dataloader()
        for hit in module(batch["input_ids"], batch["attention_mask"]).argmax(1) == batch["label"]
    ]
    wilson = stats.binomtest(sum(right), len(right)).proportion_ci(method="wilson")
    return {
        "test_right": sum(right),
        "test_documents": len(right),
        "test_accuracy": sum(right) / len(right),
        "test_interval": [float(wilson.low), float(wilson.high)],
    }


def trained(seed: int, data: EraserDocuments, tweets: Path | None, results: Path, runs: Path) -> dict[str, Any]:
    """The record of a seed's training, which is run if it is not there yet.

    Raises:
        SystemExit: If results are there and their model is not: a model trained anew is another one.
    """
    path, folder = training_file(seed, results), runs / f"seed_{seed}"
    model = folder / "best.ckpt"
    if path.exists() and not model.exists():
        raise SystemExit(
            f"{path.parent} holds results of a model that is not there any more ({model}): --tables-only writes their "
            "tables; move the folder away to train and measure anew"
        )
    if not path.exists():
        record = train(seed, data, dataset("tweets", tweets), folder)
        save(path, record, indent=1)
    return saved_training(seed, results)


def saved_training(seed: int, results: Path) -> dict[str, Any]:
    """The record of a seed's training, without the model."""
    return json.loads(training_file(seed, results).read_text(encoding="utf-8"))


def training_file(seed: int, results: Path) -> Path:
    """Where the record of a seed's training is kept."""
    return results / f"seed_{seed}" / "training.json"
