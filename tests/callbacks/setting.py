"""A tiny image classifier, its data and its trainer, from either of Lightning's packages."""

import gc
import importlib
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from grouped_options import grouped
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_module
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.utils.data import DataLoader, StackDataset

from lrptrain.callbacks import RelevanceMonitor

PACKAGES = ("pytorch_lightning", "lightning.pytorch")

# Attributes of a `module`.
UNTRAINED: dict[str, Any] = {"training_step": lambda batch, batch_idx: pytest.fail("training began")}
UNSEEING: dict[str, Any] = {"validation_step": lambda batch, batch_idx: None}
"""Its validation never calls the model."""


class Points(Logger):
    """A logger that keeps what it is given."""

    name = version = "points"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, metrics))

    def log_hyperparams(self, *arguments: Any, **options: Any) -> None:
        pass


def vit(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 3}
    return VisionTransformer(**{**sizes, **options})


def balanced() -> nn.Module:
    """A random model that gives all three answers about as often, so that something can be exchanged."""
    net: Any = vit()
    with torch.no_grad():
        net.head.bias -= net.eval()(data()["image"]).mean(0)
    return net.train()


def data(samples: int = 24, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random images whose evidence is the left quarter, labels that do not come in turn."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.zeros(samples, 16, 16, dtype=torch.uint8)
    mask[:, :, :4] = 1
    return {
        "image": torch.randn(samples, 3, 16, 16, generator=generator),
        "label": torch.randint(0, 3, (samples,), generator=generator),
        "mask": mask,
    }


def learn(net: nn.Module, loss: Callable[[int], torch.Tensor], steps: int, lr: float = 3e-3) -> None:
    """Steps of AdamW on a loss, a function of the step's number."""
    optimizer = torch.optim.AdamW(net.parameters(), lr)
    for step in range(steps):
        loss(step).backward()
        optimizer.step()
        optimizer.zero_grad()


def loader(columns: dict[str, torch.Tensor] | None = None, batch_size: int = 5, shuffle: bool = False) -> DataLoader:
    dataset: Any = StackDataset(**(columns or data()))  # type: ignore[arg-type]
    return DataLoader(dataset, batch_size=batch_size, shuffle=shuffle)


def module(package: str = PACKAGES[0], net: nn.Module | None = None, **attributes: Any) -> Any:
    """A LightningModule around a net, deterministic given its seed."""
    pl = importlib.import_module(package)

    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net if net is not None else vit()
            for name, value in attributes.items():
                setattr(self, name, value)

        def forward(self, image):
            return self.net(image)

        def training_step(self, batch, batch_idx):
            loss = F.cross_entropy(self(batch["image"]), batch["label"])
            random.random(), np.random.rand()
            return loss

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self(batch["image"])

        def configure_optimizers(self):
            return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=getattr(self, "lr", 1e-2))

    return Classifier()


def monitor(**options: Any) -> RelevanceMonitor:
    return RelevanceMonitor(
        **grouped({"max_samples": 8, "max_pictures": 2, "run_name": "run", "budget": None, **options})
    )


def trainer(folder: Any, *callbacks: Any, package: str = PACKAGES[0], **options: Any) -> Any:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    default = {"max_epochs": 2, "accelerator": "cpu", "devices": 1, "enable_checkpointing": False, **quiet}
    pl = importlib.import_module(package)
    return pl.Trainer(**{"default_root_dir": folder, "callbacks": list(callbacks), **default, **options})


@contextmanager
def messages() -> Iterator[list[str]]:
    """What is said to the user through Lightning's logger of the first process."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    rank_zero_module.log.addHandler(handler)
    try:
        yield lines
    finally:
        rank_zero_module.log.removeHandler(handler)


@contextmanager
def no_graph_left() -> Iterator[None]:
    """No tensor that a graph made outlives the block; what was there before it is not looked through."""
    gc.collect()
    gc.freeze()
    yield
    gc.collect()
    assert not [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor) and x.grad_fn is not None]
