"""What a user brings: modules and data of images as a stranger to this project writes them, named by dotted paths."""

from typing import Any

import pytorch_lightning as pl
import timm
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

MEAN, STD = (0.2, 0.3, 0.4), (0.1, 0.2, 0.3)


def pixels(images: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images in 0..1 of which one channel is bright in the middle, their class; and masks of the middle."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(images) % 3
    image = torch.rand(images, 3, 16, 16, generator=generator) * 0.3
    image[torch.arange(images), label, 4:12, 4:12] += 0.7
    mask = torch.zeros(images, 16, 16, dtype=torch.uint8)
    mask[:, 4:12, 4:12] = 1
    return image, label, mask


def samples(images: int, seed: int) -> TensorDataset:
    image, label, mask = pixels(images, seed)
    return TensorDataset((image - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None], label, mask)


class Vision(pl.LightningModule):
    """Saves no arguments."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.backbone = timm.create_model(
            "vit_tiny_patch16_224", img_size=16, patch_size=4, embed_dim=width, depth=2, num_heads=heads, num_classes=3
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.backbone(x)

    def training_step(self, batch: Any, index: int) -> Tensor:
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, index: int) -> None:
        pass

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), 3e-3)


class Headless(Vision):
    """Has no forward of its own, but two children."""

    forward = pl.LightningModule.forward

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.other = torch.nn.Linear(3, 3)


class Saved(Vision):
    """Saves its arguments, of which one may be any object."""

    def __init__(self, width: int = 16, heads: int = 2, extra: Any = None) -> None:
        super().__init__(width, heads)
        self.save_hyperparameters()


class Data(pl.LightningDataModule):
    """Makes its data in "fit" alone, and saves no arguments."""

    def __init__(self, batch_size: int = 8) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.class_names = ["red", "green", "blue"]

    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.train, self.val = samples(48, 0), samples(24, 1)

    def train_dataloader(self) -> Any:
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(self.val, batch_size=self.batch_size)


def loader() -> Any:
    return DataLoader(samples(24, 1), batch_size=8)


def renamed(size: int) -> list[dict[str, Tensor]]:
    return [{"picture": batch[0], "class": batch[1]} for batch in DataLoader(samples(24, 1), batch_size=size)]


def adapter(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"image": batch["picture"], "label": batch["class"]}


def untrained() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return Vision(), loader()


def adapted() -> dict[str, Any]:
    return {"model": untrained()[0], "loader": renamed(8), "batch_adapter": adapter}


def incomplete() -> dict[str, Any]:
    return {"model": untrained()[0]}


def too_many() -> tuple[Any, ...]:
    return (*untrained(), 3)


def unknown() -> dict[str, Any]:
    return {"model": untrained()[0], "loader": loader(), "annotate": None}


def failing() -> Any:
    raise KeyError("no licence")


def checkpoint(module: pl.LightningModule, path: Any, data: Any = None, **limits: Any) -> str:
    """Save a module as a trainer does, trained with the data or not at all."""
    switches: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = pl.Trainer(accelerator="cpu", limit_val_batches=0, **switches, **limits)
    if data is None:
        trainer.strategy.connect(module)
    else:
        trainer.fit(module, datamodule=data)
    trainer.save_checkpoint(path)
    return str(path)


def other_package(masks: str = "with channel") -> Any:
    """A datamodule of `lightning.pytorch` without a test set; masks may have the axis that images have."""
    import lightning.pytorch

    class Other(lightning.pytorch.LightningDataModule):
        def setup(self, stage: str) -> None:
            assert stage == "fit"

        def train_dataloader(self) -> Any:
            return self.loader(48, 0)

        def val_dataloader(self) -> Any:
            return self.loader(24, 1)

        def loader(self, images: int, seed: int) -> Any:
            image, label, mask = samples(images, seed).tensors
            shaped = {"with channel": mask[:, None], "regions": torch.stack([mask, 1 - mask], 1), "plain": mask}
            return DataLoader(TensorDataset(image, label, shaped[masks]), batch_size=8)

    return Other()
