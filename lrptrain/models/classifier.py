"""What image and text classifiers share: steps, logged values, optimiser."""

from typing import Any

import pytorch_lightning as pl
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy

from lrptrain.models.optimizer import Schedule, adamw, check_schedule


class Classifier(pl.LightningModule):
    """Cross-entropy on a dict batch with AdamW.

    A subclass names the `batch_keys` it passes to its `forward`, which returns logits `[batch, classes]`.

    Logged: `train/loss`, `val/loss` (cross-entropy, nats), `val/accuracy`, `test/accuracy` (0..1).

    Args:
        num_classes: Number of classes.
        lr: Learning rate, the peak one for `one_cycle`.
        weight_decay: AdamW's.
        schedule: `"one_cycle"` (stepped every batch) or `"constant"`.
    """

    batch_keys: tuple[str, ...] = ()

    def __init__(self, num_classes: int, lr: float, weight_decay: float, schedule: Schedule) -> None:
        super().__init__()
        check_schedule(schedule)
        self.lr = lr
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.val_accuracy = MulticlassAccuracy(num_classes, average="micro")
        self.test_accuracy = MulticlassAccuracy(num_classes, average="micro")

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Task loss of one batch."""
        loss = F.cross_entropy(self._logits(batch), batch["label"])
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch["label"]))
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Loss and accuracy over the validation set."""
        logits, label = self._logits(batch), batch["label"]
        self.val_accuracy(logits, label)
        self.log("val/loss", F.cross_entropy(logits, label), prog_bar=True, batch_size=len(label))
        self.log("val/accuracy", self.val_accuracy, prog_bar=True, batch_size=len(label))

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Accuracy over the test set."""
        self.test_accuracy(self._logits(batch), batch["label"])
        self.log("test/accuracy", self.test_accuracy, batch_size=len(batch["label"]))

    def configure_optimizers(self) -> Any:
        """AdamW over all parameters that require gradients, with the chosen schedule."""
        return adamw(self, self.lr, self.weight_decay, self.schedule)

    def _logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch classes"]:
        return self(**{key: batch[key] for key in self.batch_keys})
