"""What the options that verbs share name, loaded: the samples of the data, and the model of a checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

    from lrptrain.batch import BatchAdapter, Sample
    from lrptrain.batch.task import Task
    from lrptrain.cli.checkpoint import Checkpoint


@dataclass(frozen=True)
class Opened:
    """A checkpoint, samples of its data, and its model.

    Attributes:
        saved: The checkpoint.
        data: The LightningDataModule, or the loader, that has the samples.
        samples: At least one sample.
        are_images: Whether samples are images, else texts.
        batch_adapter: Brings a batch of another form to the names of the contract; None without.
        task: What output and labels mean.
        batch_size: Samples per forward pass.
        seed: Seed of all that is drawn.
        load: Returns the LightningModule of a checkpoint, and the part of it whose forward gives logits (or the
            module itself), in evaluation mode on its device; it has run on a sample.
    """

    saved: "Checkpoint"
    data: Any
    samples: "list[Sample]"
    are_images: bool
    batch_adapter: "BatchAdapter | None"
    task: "Task"
    batch_size: int
    seed: int
    load: "Callable[[Checkpoint], tuple[Any, nn.Module]]"


def open_checkpoint(
    checkpoint: str,
    data: str | None = None,
    split: Literal["val", "test", "train"] = "val",
    max_samples: int = 64,
    batch_size: int = 16,
    seed: int = 0,
    module: str | None = None,
    model: str | None = None,
    batch_adapter: str | None = None,
    task: str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> Opened:
    """Read a checkpoint, and draw samples of its data as evenly over the classes as they allow.

    A verb takes these options as its `**options`, and what it says of one of them itself goes before: jsonargparse
    reads both.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        data: package.DataModule, "package.DataModule(argument=value)", a loader, or a config of which the `data:`
            section is read; else the data that the checkpoint was trained with, where it says so.
        split: The samples are drawn from the validation or the test set.
        max_samples: How many samples, as evenly over the classes as they allow.
        batch_size: Samples per forward pass.
        seed: Seed of all that is drawn.
        module: package.Class of the LightningModule, "package.Class(argument=value)", or a config of which the `model:`
            section is read; else the checkpoint's own, or this project's for images and texts.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: package.function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so: "classes" (one-hot labels), "binary" (one logit,
            soft labels), "lrptrain.OneLabel(column=2)" (several labels), or "lrptrain.Regression(mean=3, std=1)".
        device: "cpu", "cuda" ...; else the GPU if there is one.
        trust: Also load a checkpoint that holds objects of any class, whose making runs code that the file brings.

    Raises:
        FileNotFoundError: If the data, or the module, are those of a config that does not exist.
        ValueError: If a number is not positive, something named cannot be found or made, or the split is empty.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.batch import IMAGES
    from lrptrain.cli.checkpoint import read_checkpoint
    from lrptrain.cli.datasets import default_device, load_adapter, load_data, load_task, split_samples
    from lrptrain.cli.modules import check_runs, load_module
    from lrptrain.trainers.checks import check_counts
    from lrptrain.trainers.discover import find_model

    check_counts(max_samples=max_samples, batch_size=batch_size)
    saved = read_checkpoint(checkpoint, trust)
    source, meaning, adapter = load_data(saved, data), load_task(task), load_adapter(batch_adapter)
    samples = split_samples(source, split, max_samples, seed, adapter, meaning)
    are_images = any(name in samples[0].tensors for name in IMAGES)

    def load(saved: "Checkpoint") -> "tuple[Any, nn.Module]":
        owner = load_module(saved, are_images, module)
        network = find_model(owner, model).eval().to(default_device(device))
        check_runs(network, samples[0], model)
        return owner, network

    return Opened(saved, source, samples, are_images, adapter, meaning, batch_size, seed, load)
