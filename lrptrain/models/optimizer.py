"""The optimiser of the LightningModules: AdamW, with a one-cycle schedule or none."""

from typing import Any, Literal

import pytorch_lightning as pl
import torch

LearningRateSchedule = Literal["one_cycle", "constant"]


def check_schedule(schedule: str) -> None:
    """Refuse a schedule of another name."""
    if schedule not in ("one_cycle", "constant"):
        raise ValueError(f"schedule must be 'one_cycle' or 'constant', got {schedule!r}")


def adamw(module: pl.LightningModule, lr: float, weight_decay: float, schedule: LearningRateSchedule) -> Any:
    """Return AdamW over all parameters that require gradients, as `configure_optimizers` returns it."""
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=lr, weight_decay=weight_decay)
    if schedule == "constant":
        return optimizer
    steps = module.trainer.estimated_stepping_batches
    if steps == float("inf"):
        raise ValueError("one_cycle needs an end: set max_epochs or max_steps of the trainer, or schedule='constant'")
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=int(steps))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
