"""Trainings against shortcuts that published work has, as plainly as they can be written: group DRO, train twice."""

import math
from typing import Any

import pytorch_lightning as pl
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


class GroupDRO:
    """The losses of samples as one, in which the group that the model is worst at counts most.

    Sagawa et al. 2020, "Distributionally robust neural networks for group shifts", algorithm 1, on one process.

    Args:
        groups: How many groups there are.
        step_size: How fast shares move.
    """

    def __init__(self, groups: int, step_size: float = 0.01) -> None:
        self.step_size = step_size
        self.logarithms = torch.full((groups,), -math.log(groups), dtype=torch.float64)

    def __call__(self, losses: Float[Tensor, " batch"], group: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        """Move the shares, and return the sum of the groups' mean losses, each times its share."""
        member = F.one_hot(group, len(self.logarithms)).to(losses)
        means = losses @ member / member.sum(0).clamp(min=1)
        moved = self.logarithms + self.step_size * means.detach().cpu().double()
        self.logarithms = moved - moved.logsumexp(0)
        return (self.logarithms.exp().to(means) * means).sum()


class GroupDROCallback(pl.Callback):
    """Group DRO of a module whose loss is the mean cross-entropy of what it returns."""

    def __init__(self, groups: int) -> None:
        self.robust = GroupDRO(groups)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Put the weighted loss in the place of the module's own."""
        module: Any = pl_module

        def training_step(batch: dict[str, Any], batch_idx: int) -> Tensor:
            logits = module(**{name: batch[name] for name in module.batch_keys})
            return self.robust(F.cross_entropy(logits, batch["label"], reduction="none"), batch["group"])

        module.training_step = training_step


def twice_weights(wrong: Bool[Tensor, " n"], factor: float = 20.0) -> Float[Tensor, " n"]:
    """Return how often each sample is drawn in the second training: what the first one errs on more often.

    Liu et al. 2021, "Just train twice"; 20 is among the paper's factors.
    """
    return torch.where(wrong, factor, 1.0)
