"""How each size of ViT is trained from nothing on CIFAR-10: its shape, its schedule, its augmentation."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torchvision.transforms import v2

from experiments.pretrain.cifar10 import CLASSES, SIDE, normalised
from experiments.vision import augment, vit

ZOOM = 0.7
"""Least height of a random window, as a share of the image's."""
GROUP = 16
"""Images that share one operation of TrivialAugment: many in a batch differ, and each operation is of many images."""


@dataclass(frozen=True)
class Recipe:
    """Of one size.

    Attributes:
        width: Of the tokens.
        depth: Number of blocks.
        epochs: Over all training images.
        batch: Images of a step.
        lr: Peak of the one-cycle schedule of AdamW.
        drop_path: Rate at which the last block is left out; it grows from 0 at the first (Huang et al. 2016).
        mixing: Share of the batches that CutMix (Yun et al. 2019) mixes or, with `trivial`, CutMix or mixup (Zhang et
            al. 2018), each half of the time.
        trivial: Whether images are changed by TrivialAugment (Müller & Hutter 2021) first.
    """

    width: int
    depth: int
    epochs: float
    batch: int
    lr: float
    drop_path: float
    mixing: float
    trivial: bool

    def model(self) -> nn.Module:
        """With random weights."""
        return vit(CLASSES, SIDE, None, self.width, self.depth, drop_path_rate=self.drop_path)

    def batch_of(
        self, pixels: UInt8[Tensor, "n 3 32 32"], labels: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n 3 32 32"], Tensor]:
        """Return images as they are trained on, and their classes, or shares of classes where images are mixed."""
        if self.trivial:
            pixels = torch.cat([v2.TrivialAugmentWide()(group) for group in pixels.split(GROUP)])
        images = augment(normalised(pixels), None, zoom=ZOOM)
        if float(torch.rand(())) >= self.mixing:
            return images, labels
        ways: list[nn.Module] = [v2.CutMix(num_classes=CLASSES)]
        if self.trivial:
            ways.append(v2.MixUp(alpha=0.8, num_classes=CLASSES))
        mixed, shares = v2.RandomChoice(ways)(images, labels)
        return mixed, shares


RECIPES = {
    "small": Recipe(128, 6, epochs=200, batch=256, lr=2e-3, drop_path=0.0, mixing=0.5, trivial=False),
    "vit_s": Recipe(384, 12, epochs=100, batch=512, lr=1e-3, drop_path=0.1, mixing=0.8, trivial=True),
}
"""The small ViT of the vision experiments, and a plain ViT-S; both with patches of 4 x 4 pixels."""
