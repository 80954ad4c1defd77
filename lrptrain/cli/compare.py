"""`lrptrain compare`: methods on a checkpoint and its data, in one table."""

from pathlib import Path
from typing import Literal


def compare_checkpoint(
    checkpoint: str,
    data: str | None = None,
    methods: str | None = None,
    split: Literal["val", "test"] = "val",
    target: Literal["predicted", "label"] = "predicted",
    max_samples: int = 64,
    batch_size: int = 16,
    seed: int = 0,
    faithfulness: bool = True,
    output: str = "comparison",
    module: str | None = None,
    model: str | None = None,
    batch_adapter: str | None = None,
    task: str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> None:
    """Compare methods on your model and data: by annotations, by what the model says without the relevant, by time.

    Writes table.md and results.json to a folder, anew after every method: the cheap ones come first, and Ctrl-C keeps
    those that are done.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        data: package.DataModule, "package.DataModule(argument=value)", a loader, or a config of which the `data:`
            section is read; else the data that the checkpoint was trained with, where it says so.
        methods: Names of `lrptrain.methods()` separated by commas; else all.
        split: The samples are drawn from the validation or the test set.
        target: The class to explain.
        max_samples: How many samples, as evenly over the classes as they allow.
        batch_size: Samples per forward pass.
        seed: Seed of the draw.
        faithfulness: Also take away what the maps call relevant, and see what the model says: many forward passes.
        output: Folder to which the results are written.
        module: package.Class of the LightningModule, "package.Class(argument=value)", or a config of which the `model:`
            section is read; else the checkpoint's own, or this project's for images and texts.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: package.function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so: "classes" (one-hot labels), "binary" (one logit,
            soft labels), "lrptrain.OneLabel(column=2)" (several labels), or "lrptrain.Regression(mean=3, std=1)".
        device: "cpu", "cuda" ...; else the GPU if there is one.
        trust: Also load a checkpoint that holds objects of any class, whose making runs code that the file brings.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If the data are not known, hold no sample, or a number is not positive.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.auditing.compare import checked_names, compare_samples
    from lrptrain.cli.checkpoint import read_checkpoint
    from lrptrain.cli.datasets import name_of, names_in
    from lrptrain.cli.loading import load_model, load_samples
    from lrptrain.cli.modules import check_runs
    from lrptrain.cli.normalisation import find_black
    from lrptrain.trainers.checks import check_counts

    check_counts(max_samples=max_samples, batch_size=batch_size)
    names = checked_names(names_in(methods) if methods else None)
    saved = read_checkpoint(checkpoint, trust)
    drawn = load_samples(saved, data, split, max_samples, seed, batch_adapter, task)
    trained = load_model(saved, drawn.are_images, module, model, device)
    check_runs(trained.network, drawn.samples[0], model)
    removes_pixels = drawn.are_images and faithfulness
    compare_samples(
        trained.network,
        drawn.samples,
        names,
        {"checkpoint": checkpoint, "data": name_of(drawn.data), "split": split, "seed": seed, "target": target},
        batch_size,
        faithfulness,
        find_black(trained.module, saved, drawn.data, drawn.batch_adapter) if removes_pixels else 0.0,
        Path(output),
        verbose=True,
        task=drawn.task,
    )
