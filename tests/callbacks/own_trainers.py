"""The same data and model in three trainers, as strangers would write them, each with a monitor of all samples."""

from typing import Any

import pytorch_lightning as pl
import torch
from grouped_options import grouped
from hugging_face import quiet_arguments
from setting import trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer

import lrptrain
from lrptrain.callbacks import RelevanceMonitor, RelevanceMonitorCallback

N = 24
ALL: dict[str, Any] = {"max_samples": N, "on_error": "raise"}


class Rows(Dataset):
    def __init__(self, columns: dict[str, Tensor], label: str):
        self.columns = {**columns, label: torch.arange(N) % 3}

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: values[index] for name, values in self.columns.items()}


class Module(pl.LightningModule):
    """Gives its model the entries by name, after it has taken the label out of the batch."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, **inputs):
        return self.net(**inputs)

    def training_step(self, batch, batch_idx):
        return self.validation_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        label = batch.pop("label")
        return nn.functional.cross_entropy(self.logits(self(**batch)), label)

    @staticmethod
    def logits(output):
        return output.logits

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def in_lightning(folder, model, columns, options):
    watching = RelevanceMonitor(**grouped({**ALL, "budget": None, **options}))
    loader = DataLoader(Rows(columns, "label"), 8)
    trainer(folder, watching, max_epochs=1).fit(Module(model), loader, loader)
    return watching


def in_transformers(folder, model, columns, options):
    watching = RelevanceMonitorCallback(**grouped({**ALL, "budget": None, **options}))
    arguments = quiet_arguments(folder, num_train_epochs=1, eval_strategy="epoch", learning_rate=1e-3)
    rows = Rows(columns, "labels")
    Trainer(model, arguments, train_dataset=rows, eval_dataset=rows, callbacks=[watching]).train()
    return watching


def step(model, batch):
    return model(**{name: x for name, x in batch.items() if name != "label"})


def in_a_loop(folder, model, columns, options):
    loader = DataLoader(Rows(columns, "label"), 8)
    with lrptrain.Monitor(model, loader, folder, step=step, **grouped({**ALL, **options})) as watching:
        watching.evaluate(0)
    return watching
