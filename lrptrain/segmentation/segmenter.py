"""Train any torch module to segment images."""

from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from lrptrain.batch.annotations import IGNORED
from lrptrain.models.optimizer import LearningRateSchedule, adamw, check_schedule


def pixel_loss(
    logits: Float[Tensor, "batch classes height width"], mask: UInt8[Tensor, "batch height width"]
) -> Float[Tensor, ""]:
    """Return the cross-entropy (nats) over the pixels that are not ignored; 0 where there is none."""
    total = F.cross_entropy(logits, mask.long(), ignore_index=IGNORED, reduction="sum")
    return total / (mask != IGNORED).sum().clamp(min=1)


class Segmenter(pl.LightningModule):
    """Cross-entropy per pixel, logged as `train/loss`, on batches with `image` and `mask` (1 + class, 255 ignored).

    Args:
        net: The network, which returns logits `[batch, 1 + classes, h, w]` of images, the background first; they are
            brought to the mask's size bilinearly. `PatchDecoder`, or any other module. `load_from_checkpoint` needs it
            again.
        lr: The learning rate; under `one_cycle` its peak.
        weight_decay: The weight decay of AdamW.
        schedule: `"one_cycle"` (stepped every batch) or `"constant"`.
    """

    def __init__(
        self, net: nn.Module, lr: float = 1e-3, weight_decay: float = 0.05, schedule: LearningRateSchedule = "one_cycle"
    ) -> None:
        super().__init__()
        check_schedule(schedule)
        self.save_hyperparameters(ignore=["net"])
        self.net = net

    def forward(
        self, image: Float[Tensor, "batch 3 height width"], size: tuple[int, int] | None = None
    ) -> Float[Tensor, "batch classes height width"]:
        """Return the logits of normalised images, at a size or that of the images."""
        return F.interpolate(self.net(image), size or image.shape[-2:], mode="bilinear", align_corners=False)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of one batch."""
        loss = pixel_loss(self(batch["image"], tuple(batch["mask"].shape[-2:])), batch["mask"])
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch["mask"]))
        return loss

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> UInt8[Tensor, "batch height width"]:
        """Return the class of every pixel, at the images' size."""
        return self(batch["image"]).argmax(1).to(torch.uint8)

    def configure_optimizers(self) -> Any:
        """Return AdamW over all parameters that require gradients, with the chosen schedule."""
        return adamw(self, self.hparams["lr"], self.hparams["weight_decay"], self.hparams["schedule"])
