"""An export from beginning to end, in one process or in several."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from lrptrain.files import write_json
from lrptrain.segmentation import files
from lrptrain.segmentation.export import (
    Export,
    Thresholds,
    best_thresholds,
    score_export,
    settings_of,
    sweeps,
)
from lrptrain.segmentation.maker import Maker, logits_of
from lrptrain.segmentation.reading import Pictures
from lrptrain.segmentation.recipe import Recipe
from lrptrain.trainers.failures import described
from lrptrain.trainers.processes import gather, rank_and_size

T = TypeVar("T")
Source = Callable[[], Iterable[Pictures]]


def run_export(
    model: nn.Module,
    recipe: Recipe,
    source: Source,
    folder: Path,
    split: str,
    class_names: Callable[[int], Sequence[str]],
    validation: Source | None = None,
) -> dict[str, dict[str, Any]]:
    """Write the seeds and pseudo-masks of images, as far as they are not there yet. All processes take part.

    Args:
        model: The classifier, in evaluation mode.
        recipe: How.
        source: Gives this process' images.
        folder: Of the export, the same in all processes.
        split: In whose list the images go.
        class_names: Names for so many classes.
        validation: Gives this process' images on which the threshold is chosen where the recipe has none.

    Returns:
        What `score_export` says.

    Raises:
        ValueError: If there is no image, or no true mask to choose a threshold on, or the folder holds an export with
            other settings.
        RuntimeError: If another process failed.
    """
    rank = rank_and_size()[0]
    classes = max(gather(together(lambda: count_classes(model, source))))
    if not classes:
        raise ValueError(f"there is no image to export in the split {split!r}")
    maker = together(lambda: Maker(model, recipe, classes))
    together(lambda: files.begin(folder, settings_of(maker), class_names(classes)) if rank == 0 else None)
    thresholds = _thresholds(folder, maker, validation)

    def write() -> None:
        export = Export(folder, maker, thresholds, split, rank)
        for pictures in source():
            export.add(pictures)

    try:
        together(write)
    finally:  # what is written counts, also where a process failed: all of them come here
        scores = together(lambda: _merged(folder, classes) if rank == 0 else {})
    return gather(scores)[0]


def count_classes(model: nn.Module, source: Source) -> int:
    """How many classes the model knows, by its answer to the first image; 0 if there is none."""
    first = next((pictures for pictures in source() if len(pictures.images)), None)
    return 0 if first is None else logits_of(model, first.images[:1]).shape[1]


def together(work: Callable[[], T]) -> T:
    """Do something in every process. If one fails, all raise: that one its error, the others that it did."""
    error: Exception | None = None
    try:
        found = work()
    except Exception as problem:
        error = problem
    told = gather("" if error is None else described(error))
    if error is not None:
        raise error
    for rank, one in enumerate(told):
        if one:
            raise RuntimeError(f"{one} (process {rank})")
    return found


def _thresholds(folder: Path, maker: Maker, validation: Source | None) -> Thresholds:
    """The recipe's, those of the export that goes on, or the best on the validation images."""
    if maker.recipe.threshold is not None:
        return Thresholds(maker.recipe.threshold, maker.recipe.threshold)
    path = folder / "thresholds.json"
    known = gather(files.read_json(path) if rank_and_size()[0] == 0 and path.exists() else None)[0]
    if known is not None:
        return Thresholds(known["seeds"], known["masks"])
    if validation is None:
        raise ValueError("there are no validation images on which a threshold could be chosen: give a threshold")
    parts = gather(together(lambda: sweeps(maker, validation())))
    found = best_thresholds(maker.classes, (sum(part[0] for part in parts), sum(part[1] for part in parts)))
    if rank_and_size()[0] == 0:
        write_json(path, asdict(found))
    return found


def _merged(folder: Path, classes: int) -> dict[str, dict[str, Any]]:
    files.merge(folder)
    return score_export(folder, classes)
