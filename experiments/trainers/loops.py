"""One fine-tuning in three trainers: Lightning, the Trainer of transformers, and a loop of one's own.

Each has the monitor attached, and the guidance where it is asked for, as its users would do it.
"""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import lrptrain
from lrptrain.callbacks import RelevanceGuidance, RelevanceMonitor
from lrptrain.findings import Finding

LR, BATCH = 3e-4, 16
Texts = dict[str, Tensor]


class Rows(Dataset):
    """Columns as a dataset of rows, with the label under a name of one's choice."""

    def __init__(self, texts: Texts, label: str) -> None:
        names = ("input_ids", "attention_mask", "rationale", "sample_id")
        self.columns = {name: texts[name] for name in names} | {label: texts["label"]}

    def __len__(self) -> int:
        return len(self.columns["input_ids"])

    def __getitem__(self, row: int) -> Texts:
        return {name: column[row] for name, column in self.columns.items()}


def monitor_options(tokenizer: Any) -> dict[str, Any]:
    """What all three monitors are asked for; nothing that a user would have to tune."""
    # Without a budget: it would draw samples of as many sizes as the trainers are fast.
    return {
        "budget": None,
        "tokenizer": tokenizer,
        "show": lrptrain.Show(class_names=["negative", "positive"], max_pictures=4),
        "run": lrptrain.Run(progress_bar=False),
    }


def inputs(batch: Texts) -> Texts:
    """What the model takes of a batch."""
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


class Module(pl.LightningModule):
    """A LightningModule around a BERT."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: Texts, batch_idx: int) -> Tensor:
        return F.cross_entropy(self.net(**inputs(batch)).logits, batch["label"])

    def validation_step(self, batch: Texts, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self.net(**inputs(batch)).logits, batch["label"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.net.parameters(), lr=LR, weight_decay=0.0)


def lightning(
    net: nn.Module, train: Texts, val: Texts, loss: str | None, folder: Path, tokenizer: Any
) -> list[Finding]:
    """Fine-tune with pytorch_lightning.Trainer; return the findings of its end."""
    monitor = RelevanceMonitor(**monitor_options(tokenizer))
    callbacks: Sequence[pl.Callback] = [monitor, *([] if loss is None else [RelevanceGuidance(loss)])]
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[*callbacks],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loaders = (DataLoader(Rows(train, "label"), BATCH), DataLoader(Rows(val, "label"), 2 * BATCH))
    trainer.fit(Module(net), *loaders)
    return monitor.findings


def transformers(
    net: nn.Module, train: Texts, val: Texts, loss: str | None, folder: Path, tokenizer: Any
) -> list[Finding]:
    """Fine-tune with transformers.Trainer; return the findings of its end."""
    from transformers import Trainer, TrainingArguments

    from lrptrain.callbacks import RelevanceMonitorCallback

    monitor = RelevanceMonitorCallback(**monitor_options(tokenizer))
    arguments = TrainingArguments(
        str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        learning_rate=LR,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=0.0,
        optim="adamw_torch",
        train_sampling_strategy="sequential",
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        net,
        arguments,
        train_dataset=Rows(train, "labels"),
        eval_dataset=Rows(val, "labels"),
        processing_class=tokenizer,
        callbacks=[monitor],
    )
    if loss is not None:
        lrptrain.guide(trainer, loss)
    trainer.train()
    return monitor.findings


def loop(net: nn.Module, train: Texts, val: Texts, loss: str | None, folder: Path, tokenizer: Any) -> list[Finding]:
    """Fine-tune in a loop of one's own; return the findings of its end."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0.0)
    monitor = lrptrain.Monitor(net, DataLoader(Rows(val, "label"), 2 * BATCH), folder, **monitor_options(tokenizer))
    guidance = None if loss is None else lrptrain.Guidance(loss, optimizer=optimizer)
    net.train()
    for batch in DataLoader(Rows(train, "label"), BATCH):
        if guidance is None:
            F.cross_entropy(net(**inputs(batch)).logits, batch["label"]).backward()
        else:
            with guidance.step(net, batch) as step:
                task_loss = F.cross_entropy(net(**inputs(batch)).logits, batch["label"])
                step.guided(task_loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    monitor.evaluate(epoch=0, step=len(train["label"]) // BATCH)
    monitor.close()
    return monitor.findings


TRAINERS = {"lightning": lightning, "transformers": transformers, "loop": loop}


def quiet() -> None:
    """Keep the output to one line per run."""
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "lightning.pytorch", "lrptrain"):
        logging.getLogger(name).setLevel(logging.ERROR)
