"""What the options of a verb name, loaded: samples of the data, and the model of a checkpoint."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from lrptrain.batch import IMAGES, BatchAdapter, Sample
from lrptrain.batch.task import Task
from lrptrain.cli.checkpoint import Checkpoint
from lrptrain.cli.datasets import Split, default_device, load_adapter, load_data, load_task, split_samples
from lrptrain.cli.modules import load_module
from lrptrain.trainers.discover import find_model


@dataclass(frozen=True)
class DrawnSamples:
    """Samples that were drawn from a split of the data, and how the data are read.

    Attributes:
        samples: At least one sample.
        data: The LightningDataModule, or the loader, that has them.
        batch_adapter: Brings a batch of another form to the names of the contract; None without.
        task: What output and labels mean.
    """

    samples: list[Sample]
    data: Any
    batch_adapter: BatchAdapter | None
    task: Task

    @property
    def are_images(self) -> bool:
        """Whether samples are images, else texts."""
        return any(name in self.samples[0].tensors for name in IMAGES)


@dataclass(frozen=True)
class TrainedModel:
    """The model of a checkpoint, in evaluation mode, on its device.

    Attributes:
        module: The LightningModule.
        network: The part of it whose forward gives logits; or the LightningModule itself.
    """

    module: Any
    network: nn.Module


def load_samples(
    checkpoint: Checkpoint,
    data: str | None,
    split: Split,
    max_samples: int,
    seed: int,
    batch_adapter: str | None = None,
    task: str | None = None,
) -> DrawnSamples:
    """Draw samples of a split, as evenly over the classes as they allow.

    Args:
        checkpoint: The checkpoint, of which the data are taken where `data` names none.
        data: As for `load_data`.
        split: The split.
        max_samples: How many samples; at least 1.
        seed: Seed of the draw.
        batch_adapter: As for `load_adapter`.
        task: As for `load_task`.

    Raises:
        FileNotFoundError: If the data are those of a config that does not exist.
        ValueError: If the data, the function or the task cannot be found or made, or the split is empty.
    """
    source = load_data(checkpoint, data)
    meaning = load_task(task)
    adapter = load_adapter(batch_adapter)
    return DrawnSamples(split_samples(source, split, max_samples, seed, adapter, meaning), source, adapter, meaning)


def load_model(
    checkpoint: Checkpoint, is_image: bool, module: str | None, model: str | None, device: str | None
) -> TrainedModel:
    """Load the model of a checkpoint.

    Args:
        checkpoint: The checkpoint.
        is_image: Whether its inputs are images, else texts.
        module: As for `load_module`.
        model: Attribute path of the model on the LightningModule; None to find it.
        device: Name of the device; None for the GPU if there is one, else the CPU.

    Raises:
        FileNotFoundError: If the module is that of a config that does not exist.
        ValueError: If the module or the model cannot be found or made.
    """
    owner = load_module(checkpoint, is_image, module)
    return TrainedModel(owner, find_model(owner, model).eval().to(default_device(device)))
