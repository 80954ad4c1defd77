"""Train any torch module to segment images."""

from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from lrptrain.batch.annotations import IGNORED
from lrptrain.models.optimizer import adamw

Images = Float[Tensor, "batch 3 height width"]
Masks = UInt8[Tensor, "batch height width"]


def random_windows(
    image: Images, mask: Masks, smallest: float = 0.5, generator: torch.Generator | None = None
) -> tuple[Images, Masks]:
    """Cut a random window out of each image and its mask, resize it to the full size, and mirror it half of the time.

    Images are interpolated bilinearly, of masks the nearest pixel is taken. `smallest` is the side of the smallest
    window, as a share of the image's in (0, 1].
    """
    if not 0 < smallest <= 1:
        raise ValueError(f"smallest must lie in (0, 1], got {smallest}")
    if mask.shape != (len(image), *image.shape[-2:]):
        raise ValueError(f"mask must be {[len(image), *image.shape[-2:]]}, as the images, got {list(mask.shape)}")
    # Per sample: the window's side, its place in both directions, and whether it is mirrored.
    side, x, y, mirror = torch.rand(4, len(image), generator=generator, device=image.device, dtype=image.dtype)
    side = smallest + (1 - smallest) * side
    theta = image.new_zeros(len(image), 2, 3)
    # x' = side * x + shift in coordinates of -1..1; a negative factor mirrors. The window never leaves the image.
    theta[:, 0, 0] = torch.where(mirror < 0.5, -side, side)
    theta[:, 1, 1] = side
    theta[:, 0, 2] = (1 - side) * (2 * x - 1)
    theta[:, 1, 2] = (1 - side) * (2 * y - 1)
    window = F.affine_grid(theta, list(image.shape), align_corners=False)
    image = F.grid_sample(image, window, padding_mode="border", align_corners=False)
    # grid_sample takes floating point only, where 0..255 are exact; the nearest pixel mixes no classes.
    values = F.grid_sample(mask[:, None].to(image), window, mode="nearest", padding_mode="border", align_corners=False)
    return image, values[:, 0].round().to(torch.uint8)


def pixel_loss(logits: Float[Tensor, "batch classes height width"], mask: Masks) -> Float[Tensor, ""]:
    """Return the cross-entropy (nats) over the pixels that are not ignored; 0 where there is none."""
    total = F.cross_entropy(logits, mask.long(), ignore_index=IGNORED, reduction="sum")
    return total / (mask != IGNORED).sum().clamp(min=1)


class Segmenter(pl.LightningModule):
    """Cross-entropy per pixel, logged as `train/loss`, on batches with `image` and `mask` (1 + class, 255 ignored).

    Args:
        net: The network, which returns logits `[batch, 1 + classes, h, w]` of images, the background first; they are
            brought to the mask's size bilinearly. `PatchDecoder`, or any other module. `load_from_checkpoint` needs it
            again.
        lr: The peak of the learning rate, which follows one cycle.
        weight_decay: The weight decay of AdamW.
    """

    def __init__(self, net: nn.Module, lr: float = 1e-3, weight_decay: float = 0.05) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["net"])
        self.net = net

    def forward(self, image: Images, size: tuple[int, int] | None = None) -> Float[Tensor, "batch classes h w"]:
        """Return the logits of normalised images, at a size or that of the images."""
        return F.interpolate(self.net(image), size or image.shape[-2:], mode="bilinear", align_corners=False)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of one batch."""
        loss = pixel_loss(self(batch["image"], tuple(batch["mask"].shape[-2:])), batch["mask"])
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch["mask"]))
        return loss

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> Masks:
        """Return the class of every pixel, at the images' size."""
        return self(batch["image"]).argmax(1).to(torch.uint8)

    def configure_optimizers(self) -> Any:
        """Return AdamW over all parameters that require gradients, whose rate follows one cycle."""
        return adamw(self, self.hparams["lr"], self.hparams["weight_decay"], "one_cycle")
