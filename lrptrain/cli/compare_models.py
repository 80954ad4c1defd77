"""`lrptrain compare-models`: trained checkpoints beside each other, on the same samples."""

from typing import Any, Literal

from lrptrain.cli.loading import open_checkpoint


def compare_checkpoints(
    checkpoints: str,
    split: Literal["val", "test"] = "val",
    copies: int = 5,
    max_samples: int = 512,
    batch_size: int = 32,
    **options: Any,
) -> None:
    """Measure trained models on the same samples: as they are, and where a shortcut tells nothing.

    Prints a table: accuracy as they are and of the worst class; with annotations, with the surroundings of others;
    with groups, of the worst one. Below it, how surely each lies above the first.

    Args:
        checkpoints: Paths separated by commas, with names or without: plain=a.ckpt,swap=b.ckpt.
        split: The samples are drawn from the validation or the test set.
        copies: How many other surroundings each sample is given.
        max_samples: How many samples, as evenly over the classes as they allow.
        batch_size: Samples per forward pass.
        **options: As for `open_checkpoint`, of the first checkpoint.

    Raises:
        ValueError: If two checkpoints have one name, the data are not known, or hold too few samples.
    """
    # Imported here: the help of a verb must not wait for what the verb needs.
    from lrptrain.batch.task import find_task
    from lrptrain.cli.checkpoint import read_checkpoint
    from lrptrain.repairing.balance import Swaps
    from lrptrain.repairing.trainings import compare_samples
    from lrptrain.trainers.checks import check_counts

    check_counts(copies=copies)
    paths = named_paths(checkpoints)
    opened = open_checkpoint(
        next(iter(paths.values())), split=split, max_samples=max_samples, batch_size=batch_size, **options
    )
    saved = {name: read_checkpoint(path, opened.saved.trust) for name, path in paths.items()}
    networks = {name: opened.load(each)[1] for name, each in saved.items()}
    swaps = Swaps(copies, batch_size, opened.seed)
    meaning = find_task(opened.task, next(iter(networks.values())))
    print(compare_samples(networks, opened.samples, balances=None, swaps=swaps, task=meaning))


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
