"""Train any torch module to segment images."""

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from lrptrain.batch.annotations import IGNORED
from lrptrain.models.optimizer import LearningRateSchedule, adamw, check_schedule
from lrptrain.segmentation.scoring import MaskScore


class Segmenter(pl.LightningModule):
    """Cross-entropy per pixel on batches with `image` and `mask` (0 background, 1 + class, 255 ignored).

    Logged: `train/loss`, `val/loss` (cross-entropy, nats), `val/miou` and `test/miou` (0..1), over the pixels of all
    images together.

    Args:
        net: The network, which returns logits `[batch, 1 + classes, h, w]` of images, the background first; they are
            brought to the mask's size bilinearly. `PatchDecoder`, or any other module. `load_from_checkpoint` needs it
            again.
        classes: The number of classes, without the background.
        lr: The learning rate; under `one_cycle` its peak.
        weight_decay: The weight decay of AdamW.
        schedule: `"one_cycle"` (stepped every batch) or `"constant"`.
    """

    def __init__(
        self,
        net: nn.Module,
        classes: int,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        schedule: LearningRateSchedule = "one_cycle",
    ) -> None:
        super().__init__()
        check_schedule(schedule)
        self.save_hyperparameters(ignore=["net"])
        self.net = net
        self.lr = lr
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.val_score = MaskScore(classes)
        self.test_score = MaskScore(classes)

    def forward(self, image: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch classes h w"]:
        """Return the logits of normalised images."""
        return self.net(image)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of one batch."""
        loss = self._loss(batch)[0]
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch["image"]))
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Log the loss of a validation batch, and count its pixels."""
        loss, logits, mask = self._loss(batch)
        self.val_score.update(logits.argmax(1).to(torch.uint8), mask)
        self.log("val/loss", loss, prog_bar=True, batch_size=len(mask))

    def on_validation_epoch_end(self) -> None:
        """Log the mean IoU over the validation set."""
        self._log_score("val", self.val_score)

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Count the pixels of a test batch."""
        _, logits, mask = self._loss(batch)
        self.test_score.update(logits.argmax(1).to(torch.uint8), mask)

    def on_test_epoch_end(self) -> None:
        """Log the mean IoU over the test set."""
        self._log_score("test", self.test_score)

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> UInt8[Tensor, "batch height width"]:
        """The class of every pixel, at the images' size."""
        image = batch["image"]
        return _to_size(self(image), image.shape[-2:]).argmax(1).to(torch.uint8)

    def configure_optimizers(self) -> Any:
        """Return AdamW over all parameters that require gradients, with the chosen schedule."""
        return adamw(self, self.lr, self.weight_decay, self.schedule)

    def _loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, 0 where every pixel is ignored; logits at the mask's size, and the mask."""
        mask = batch["mask"]
        logits = _to_size(self(batch["image"]), mask.shape[-2:])
        total = F.cross_entropy(logits, mask.long(), ignore_index=IGNORED, reduction="sum")
        return total / (mask != IGNORED).sum().clamp(min=1), logits, mask

    def _log_score(self, split: str, score: MaskScore) -> None:
        self.log(f"{split}/miou", score.compute()["mean_iou"], prog_bar=True)
        score.reset()


def _to_size(logits: Tensor, size: Sequence[int]) -> Float[Tensor, "batch classes height width"]:
    """Resample logits bilinearly to a size, unless they have it."""
    if logits.shape[-2:] == tuple(size):
        return logits
    return F.interpolate(logits, tuple(size), mode="bilinear", align_corners=False)
