"""The project of a reader, imported by the README under this name: small, and nothing in it knows of lrptrain."""

from typing import Any

import pytorch_lightning as pl
import timm
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

SIZES: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2, "num_classes": 2}


class MyModule(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = timm.models.VisionTransformer(**SIZES)

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self(batch["image"]), batch["label"])

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.log("val_loss", cross_entropy(self(batch["image"]), batch["label"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-3)


class MyData(pl.LightningDataModule):
    """Noise with a bright or a dark square, which is the evidence."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(squares(64, seed=0), 16)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader:
        return DataLoader(squares(32, seed=1), 16)  # type: ignore[arg-type]


def squares(count: int, seed: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (count,), generator=generator)
    image = torch.rand(count, 3, 32, 32, generator=generator)
    image[:, :, 8:16, 8:16] = label[:, None, None, None].float()
    mask = torch.zeros(count, 32, 32)
    mask[:, 8:16, 8:16] = 1
    return [{"image": x, "label": y, "mask": z} for x, y, z in zip(image, label, mask, strict=True)]


def trained() -> torch.nn.Module:
    torch.manual_seed(0)
    net = timm.models.VisionTransformer(**SIZES)
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
    for batch in list(MyData().train_dataloader()) * 15:
        cross_entropy(net(batch["image"]), batch["label"]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return net.eval()


images = torch.rand(2, 3, 32, 32)
model = trained()
loader = MyData().val_dataloader()
