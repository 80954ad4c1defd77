"""`lrptrain compare`: methods on a checkpoint and its data, in one table."""

from pathlib import Path
from typing import Any, Literal

from lrptrain.cli.loading import open_checkpoint


def compare_checkpoint(
    checkpoint: str,
    methods: str | None = None,
    split: Literal["val", "test"] = "val",
    target: Literal["predicted", "label"] = "predicted",
    faithfulness: bool = True,
    output: str = "comparison",
    **options: Any,
) -> None:
    """Compare methods on your model and data: by annotations, by what the model says without the relevant, by time.

    Writes table.md and results.json to a folder, anew after every method: the cheap ones come first, and Ctrl-C keeps
    those that are done.

    Args:
        checkpoint: Path of a checkpoint of `lrptrain fit`, or of any LightningModule named by --module.
        methods: Names of `lrptrain.methods()` separated by commas; else all.
        split: The samples are drawn from the validation or the test set.
        target: The class to explain.
        faithfulness: Also take away what the maps call relevant, and see what the model says: many forward passes.
        output: Folder to which the results are written.
        **options: As for `open_checkpoint`.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        ValueError: If the data are not known, hold no sample, or a number is not positive.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.auditing.compare import checked_names, compare_samples
    from lrptrain.cli.datasets import name_of, names_in
    from lrptrain.cli.normalisation import find_black

    names = checked_names(names_in(methods) if methods else None)
    opened = open_checkpoint(checkpoint, split=split, **options)
    module, network = opened.load(opened.saved)
    removes_pixels = opened.are_images and faithfulness
    about = {"checkpoint": checkpoint, "data": name_of(opened.data), "split": split, "seed": opened.seed}
    compare_samples(
        network,
        opened.samples,
        names,
        {**about, "target": target},
        opened.batch_size,
        faithfulness,
        find_black(module, opened.saved, opened.data, opened.batch_adapter) if removes_pixels else 0.0,
        Path(output),
        verbose=True,
        task=opened.task,
    )
