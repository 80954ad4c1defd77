"""One training run, for all tables: any module that takes a batch's inputs, any arm, so many steps."""

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset

import lrptrain
from experiments.guidance.arms import Arm
from lrptrain.callbacks import GroupDRO, RelevanceGuidance
from lrptrain.guidance.evidence import evidence
from lrptrain.guidance.swap import Swap

Batch = dict[str, Tensor]
Precision = Literal["32-true", "bf16-mixed"]
GROUPS = 2
"""With another class's shortcut, and with that of the own."""


class Trained(pl.LightningModule):
    """Cross-entropy, or the same on swapped surroundings, with AdamW and a one-cycle schedule."""

    def __init__(
        self,
        net: nn.Module,
        inputs: Callable[[Batch], dict[str, Tensor]],
        arm: Arm,
        lr: float,
        precision: Precision = "32-true",
    ):
        super().__init__()
        self.net, self.inputs, self.arm, self.lr, self.trained_in = net, inputs, arm, lr, precision

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if self.arm.rule == "swapped":
            batch = swapped(batch)
        output = self.net(**self.inputs(batch))
        return F.cross_entropy(getattr(output, "logits", output), batch["label"])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=self.arm.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, int(self.trainer.max_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def draw_weights(columns: Batch, arm: Arm) -> Tensor:
    """How often each sample is drawn: alike, or for group DRO so that both groups are."""
    weights = torch.ones(len(columns["label"]), dtype=torch.float64)
    if arm.rule == "group_dro":
        weights /= torch.bincount(columns["group"], minlength=2)[columns["group"]]
    return weights


def swapped(batch: Batch, generator: torch.Generator | None = None) -> Batch:
    """The batch with what lies outside of its annotations taken from another sample."""
    if "image" in batch:
        return {**batch, "image": Swap()(batch["image"], evidence(batch), generator).explained}
    arguments = {"attention_mask": batch["attention_mask"]}
    found = Swap()(batch["input_ids"], evidence(batch), generator, arguments)
    return {**batch, "input_ids": found.explained, "rationale": found.annotation, **found.arguments}


def fit(module: Trained, loader: DataLoader, steps: int, weight: float, seed: int) -> float:
    """Train for so many steps; seconds taken."""
    options = module.arm.guidance
    callbacks: list[pl.Callback] = [] if options is None else [guidance(options, weight, seed)]
    if module.arm.rule == "group_dro":
        callbacks.append(GroupDRO(GROUPS, step_size=module.arm.group_step))
    started = time.monotonic()
    quiet_trainer(steps, callbacks, module.trained_in).fit(module, loader)
    module.eval()
    return time.monotonic() - started


def repair_last_layer(net: nn.Module, arm: Arm, columns: Batch, batch_size: int, seed: int) -> None:
    """Train the last layer anew on held-out samples, if the arm says so."""
    if arm.repair is None:
        return
    loader = DataLoader(StackDataset(**columns), batch_size)
    repaired = lrptrain.repair(net, loader, balance=arm.repair, max_samples=len(columns["label"]), seed=seed)
    repaired.apply(net)


def quiet_trainer(
    steps: int,
    callbacks: Sequence[pl.Callback],
    precision: Precision = "32-true",
) -> pl.Trainer:
    """On one core; gradient norm 1."""
    for name in ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    limits = {"max_steps": steps, "max_epochs": -1, "gradient_clip_val": 1.0, "precision": precision}
    return pl.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **limits, **quiet)


def guidance(arguments: dict[str, Any], weight: float, seed: int) -> RelevanceGuidance:
    """The callback of an arm; annotations may be sparse. A weight of 0 is that of an arm that needs none."""
    return RelevanceGuidance(**arguments, weight=weight or None, sparse=True, compare_every_n_batches=0, seed=seed)
