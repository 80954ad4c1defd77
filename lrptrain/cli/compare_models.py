"""`lrptrain compare-models`: trained checkpoints beside each other, on the same samples."""

from typing import Literal


def compare_checkpoints(
    checkpoints: str,
    data: str | None = None,
    split: Literal["val", "test"] = "val",
    copies: int = 5,
    max_samples: int = 512,
    batch_size: int = 32,
    seed: int = 0,
    module: str | None = None,
    model: str | None = None,
    batch_adapter: str | None = None,
    task: str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> None:
    """Measure trained models on the same samples: as they are, and where a shortcut tells nothing.

    Prints a table: accuracy as they are and of the worst class; with annotations, with the surroundings of others;
    with groups, of the worst one. Below it, how surely each lies above the first.

    Args:
        checkpoints: Paths separated by commas, with names or without: plain=a.ckpt,swap=b.ckpt.
        data: package.DataModule, "package.DataModule(argument=value)", a loader, or a config of which the `data:`
            section is read; else the data that the first checkpoint was trained with, where it says so.
        split: The samples are drawn from the validation or the test set.
        copies: How many other surroundings each sample is given.
        max_samples: How many samples, as evenly over the classes as they allow.
        batch_size: Samples per forward pass.
        seed: Seed of all that is drawn.
        module: package.Class of the LightningModule, "package.Class(argument=value)", or a config of which the `model:`
            section is read; else the checkpoint's own, or this project's for images and texts.
        model: Attribute path of the model on the LightningModule, where that has no forward of its own.
        batch_adapter: package.function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so: "classes" (one-hot labels), "binary" (one logit,
            soft labels), or "lrptrain.OneLabel(column=2)" (several labels).
        device: "cpu", "cuda" ...; else the GPU if there is one.
        trust: Also load a checkpoint that holds objects of any class, whose making runs code that the file brings.

    Raises:
        ValueError: If two checkpoints have one name, the data are not known, or hold too few samples.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.batch.task import find_task
    from lrptrain.cli.checkpoint import read_checkpoint
    from lrptrain.cli.loading import load_model, load_samples
    from lrptrain.cli.modules import check_runs
    from lrptrain.repairing.balance import Swaps
    from lrptrain.repairing.trainings import compare_samples
    from lrptrain.trainers.checks import check_counts

    check_counts(max_samples=max_samples, batch_size=batch_size, copies=copies)
    saved = {name: read_checkpoint(path, trust) for name, path in named_paths(checkpoints).items()}
    drawn = load_samples(next(iter(saved.values())), data, split, max_samples, seed, batch_adapter, task)
    networks = {}
    for name, each in saved.items():
        networks[name] = load_model(each, drawn.are_images, module, model, device).network
        check_runs(networks[name], drawn.samples[0], model)
    swaps = Swaps(copies, batch_size, seed)
    meaning = find_task(drawn.task, next(iter(networks.values())))
    print(compare_samples(networks, drawn.samples, balances=None, swaps=swaps, task=meaning))


def named_paths(checkpoints: str) -> dict[str, str]:
    """Return the paths of checkpoints by their names; what has none is called by its path.

    Args:
        checkpoints: As in `plain=a.ckpt,swap=b.ckpt`.

    Raises:
        ValueError: If a part is empty, or two have one name.
    """
    paths: dict[str, str] = {}
    for part in checkpoints.split(","):
        name, equals, path = part.strip().partition("=")
        path = path if equals else name
        if not name or not path:
            raise ValueError(
                f"checkpoints are paths separated by commas, as in plain=a.ckpt,swap=b.ckpt: {checkpoints!r}"
            )
        if name in paths:
            raise ValueError(f"two checkpoints are called {name!r}: name them, as in plain=a.ckpt,swap=b.ckpt")
        paths[name] = path
    return paths
