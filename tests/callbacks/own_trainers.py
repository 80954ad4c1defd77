"""The same data and model in three trainers, as strangers would write them, each with a monitor of all samples."""

import inspect
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from grouped_options import grouped
from hugging_face import quiet_arguments
from setting import trainer, vit
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset
from transformers import Trainer

import lrptrain
from lrptrain.callbacks import RelevanceMonitor, RelevanceMonitorCallback

N = 24


def rows(columns: dict[str, Any], label: str = "label") -> Any:
    """Samples by name, with labels of three classes where there are none."""
    given = {"label": torch.arange(len(next(iter(columns.values())))) % 3, **columns}
    return StackDataset(**{(label if name == "label" else name): x for name, x in given.items()})


def answered(logits: Tensor, labels: Tensor | None, loss: Callable[..., Tensor] = F.cross_entropy) -> Any:
    """Logits, and with labels the loss beside them, as models of transformers return them."""
    return logits if labels is None else {"loss": loss(logits, labels), "logits": logits}


class Named(nn.Module):
    """A ViT in the words of transformers."""

    def __init__(self, **options: Any):
        super().__init__()
        self.net = vit(**options)

    def forward(self, image: Tensor, labels: Tensor | None = None) -> Any:
        return answered(self.net(image), labels)


def step(model: nn.Module, batch: dict[str, Tensor]) -> Any:
    """What a model answers to the entries of a batch that it takes."""
    taken = inspect.signature(model.forward).parameters
    return model(**{name: x for name, x in batch.items() if name in taken})


class Module(pl.LightningModule):
    """Gives its model the entries by name, after it has taken the label out of the batch."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net
        self.loss = getattr(net, "loss", F.cross_entropy)

    def forward(self, **inputs):
        return step(self.net, inputs)

    def training_step(self, batch, batch_idx):
        return self.validation_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        label = batch.pop("label")
        return self.loss(self.logits(self(**batch)), label)

    @staticmethod
    def logits(output):
        return output if isinstance(output, Tensor) else output["logits"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def of_all(columns, options):
    size = len(next(iter(columns.values())))
    return grouped({"max_samples": size, "on_error": "raise", "budget": None, **options})


def in_lightning(folder, model, columns, options):
    watching = RelevanceMonitor(**of_all(columns, options))
    loader = DataLoader(rows(columns), 8)
    trainer(folder, watching, max_epochs=1).fit(Module(model), loader, loader)
    return watching


def in_transformers(folder, model, columns, options):
    watching = RelevanceMonitorCallback(**of_all(columns, options))
    arguments = quiet_arguments(folder, num_train_epochs=1, eval_strategy="epoch", learning_rate=1e-3)
    data = rows(columns, "labels")
    Trainer(model, arguments, train_dataset=data, eval_dataset=data, callbacks=[watching]).train()
    return watching


def in_a_loop(folder, model, columns, options):
    loader = DataLoader(rows(columns), 8)
    with lrptrain.Monitor(model, loader, folder, step=step, **of_all(columns, options)) as watching:
        watching.evaluate(0)
    return watching


TRAINERS = [in_lightning, in_transformers, in_a_loop]


def answers(watching: Any) -> list[int]:
    """The class that is answered to each sample, in their order."""
    return [each.predicted for each in sorted(watching.scored, key=lambda each: each.sample.sample_id)]
