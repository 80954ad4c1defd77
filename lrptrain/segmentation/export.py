"""Seeds and pseudo-masks of many images, batch by batch, into the files of an export, in one process or several."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int, UInt8
from torch import Tensor, nn

from lrptrain.batch.annotations import IGNORED
from lrptrain.data.pictures import read_mask
from lrptrain.files import write_json
from lrptrain.relevance.default import DEFAULT_METHODS
from lrptrain.segmentation import export_files
from lrptrain.segmentation.config import DEFAULT_THRESHOLD, PseudoMaskConfig
from lrptrain.segmentation.generator import SeedBatch, SeedGenerator, compute_logits, weights_checksum
from lrptrain.segmentation.images import ImageBatch, true_masks
from lrptrain.segmentation.masks import ThresholdSweep, label_map, number_classes, pseudo_masks
from lrptrain.segmentation.scoring import MaskScore
from lrptrain.segmentation.sizes import patch_size
from lrptrain.terminal import WrappedWarning
from lrptrain.trainers.processes import gather, in_every_process, rank_and_size

MAP_VALUES_PER_PATCH = 4
"""Saved maps have at most so many values per patch, in height and in width."""
MASK_FOLDERS = {"seeds": export_files.SEEDS, "refined": export_files.REFINED, "masks": export_files.MASKS}
"""The folder of each kind of mask."""
NO_CLASS = "no class is present"
NO_RELEVANCE = "no relevance is positive"

ImageSource = Callable[[], Iterable[ImageBatch]]
"""Yields the images of this process anew at each call."""


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of the background.

    Attributes:
        seeds: Threshold of the seeds.
        masks: Threshold of the refined maps.
    """

    seeds: float
    masks: float


def run_export(
    model: nn.Module,
    config: PseudoMaskConfig,
    source: ImageSource,
    folder: Path,
    split: str,
    class_names: Callable[[int], Sequence[str]],
    validation: ImageSource | None = None,
    progress: bool = False,
) -> dict[str, dict[str, Any]]:
    """Write the seeds and pseudo-masks of images that are not in the folder yet. All processes call it together.

    Args:
        model: The classifier, in evaluation mode.
        config: How seeds and masks are made.
        source: Yields this process' images.
        folder: Folder of the export, the same in all processes.
        split: Name of the list that the images are put on.
        class_names: Returns the names of so many classes.
        validation: Yields this process' share of the images on which the threshold is chosen if the config has none.
        progress: Whether the first process shows a progress bar.

    Returns:
        What `score_export` returns.

    Raises:
        ValueError: If there is no image, or the folder holds an export with other settings.
        RuntimeError: If another process failed.
    """
    rank = rank_and_size()[0]
    # A process without images counts 0 classes and takes the number from the others.
    classes = max(gather(in_every_process(lambda: count_classes(model, source))))
    if not classes:
        raise ValueError(f"there is no image to export in the split {split!r}")
    generator = in_every_process(lambda: SeedGenerator(model, config, classes))
    settings = export_settings(generator)
    in_every_process(lambda: export_files.begin_export(folder, settings, class_names(classes)) if rank == 0 else None)
    shows_progress = progress and rank == 0
    thresholds = _thresholds(folder, generator, validation, shows_progress)

    def write() -> None:
        writer = ExportWriter(folder, generator, thresholds, split, rank)
        for batch in with_progress(source(), f"Masks of the {split} images", shows_progress):
            writer.add(batch)

    try:
        in_every_process(write)
    finally:  # files that are complete count even if a process failed, and all processes come here
        scores = in_every_process(lambda: _merge_and_score(folder, classes) if rank == 0 else {})
    return gather(scores)[0]


def with_progress(batches: Iterable[ImageBatch], title: str, shown: bool) -> Iterator[ImageBatch]:
    """Yield batches, and count their images in a progress bar if it is to be shown."""
    from tqdm.auto import tqdm

    with tqdm(desc=title, unit=" images", disable=not shown) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch.images))


def count_classes(model: nn.Module, source: ImageSource) -> int:
    """Return how many logits the model gives for the first image; 0 if there is no image."""
    first = next((batch for batch in source() if len(batch.images)), None)
    return 0 if first is None else compute_logits(model, first.images[:1]).shape[1]


def export_settings(generator: SeedGenerator) -> dict[str, Any]:
    """Return what must be the same for an export to be continued: the config and the weights."""
    config = generator.config
    # The default may be another one in a later version of the library: its name, not None, is what stays.
    method = config.method or DEFAULT_METHODS[0]
    weights = weights_checksum(generator.model)
    return {**asdict(config), "method": method, "scales": list(config.scales), "weights": weights}


def _thresholds(
    folder: Path, generator: SeedGenerator, validation: ImageSource | None, progress: bool = False
) -> Thresholds:
    """Return the config's threshold, those of the export that is continued, or the best on the validation images.

    Without a validation image that has a true mask it is the default, which a warning says.
    """
    if generator.config.threshold is not None:
        return Thresholds(generator.config.threshold, generator.config.threshold)
    is_first = rank_and_size()[0] == 0
    path = folder / "thresholds.json"
    # One process looks, and all follow: the file may be written just then, and they must agree.
    saved = gather(export_files.read_json_file(path) if is_first and path.exists() else None)[0]
    if saved is not None:
        return Thresholds(saved["seeds"], saved["masks"])
    thresholds = None if validation is None else _swept_thresholds(generator, validation, progress)
    if thresholds is None:
        thresholds = Thresholds(DEFAULT_THRESHOLD, DEFAULT_THRESHOLD)
        if is_first:
            warnings.warn(
                f"no validation image has a true mask on which the background's threshold could be chosen: it is "
                f"{DEFAULT_THRESHOLD}; look at some masks, and set `threshold` in the config if another fits better",
                WrappedWarning,
                stacklevel=2,
            )
    if is_first:
        write_json(path, asdict(thresholds))
    return thresholds


def _swept_thresholds(generator: SeedGenerator, validation: ImageSource, progress: bool) -> Thresholds | None:
    """Return the thresholds that fit the true masks best, None where no image has one."""

    def sweep() -> tuple[Tensor, Tensor]:
        return sweep_thresholds(generator, with_progress(validation(), "Threshold, on the validation images", progress))

    # Counts can be summed over processes, thresholds cannot.
    parts = gather(in_every_process(sweep))
    seed_counts = torch.stack([seeds for seeds, _ in parts]).sum(0)
    mask_counts = torch.stack([masks for _, masks in parts]).sum(0)
    if not int(seed_counts.sum()):
        return None
    return best_thresholds(generator.classes, (seed_counts, mask_counts))


def sweep_thresholds(
    generator: SeedGenerator, batches: Iterable[ImageBatch]
) -> tuple[Int[Tensor, "..."], Int[Tensor, "..."]]:
    """Return the counts of a `ThresholdSweep` for the seeds and for the refined maps, over images with a true mask."""
    seeds = ThresholdSweep(generator.classes)
    refined = ThresholdSweep(generator.classes)
    for batch in batches:
        truth = true_masks(batch, generator.present(batch), generator.config.masks)
        rows = (truth != IGNORED).flatten(1).any(1).nonzero().flatten().tolist()
        # Images without a true mask say nothing about the threshold; their maps are not computed.
        if not rows:
            continue
        maps = generator.generate(batch.rows(rows))
        if len(maps.classes):
            seeds.update(maps.seeds, truth[rows], maps.classes)
            refined.update(maps.refined, truth[rows], maps.classes)
    return seeds.counts, refined.counts


def best_thresholds(classes: int, counts: tuple[Tensor, Tensor]) -> Thresholds:
    """Return the best threshold of the seeds and that of the refined maps.

    Args:
        classes: How many classes there are, without the background.
        counts: What `sweep_thresholds` returns, summed over processes.

    Raises:
        ValueError: If no image had a true mask.
    """
    best = []
    for count in counts:
        sweep = ThresholdSweep(classes)
        sweep.counts = count
        if not int(count.sum()):
            raise ValueError("no validation image has a true mask, on which a threshold could be chosen: give one")
        best.append(sweep.best()[0])
    return Thresholds(seeds=best[0], masks=best[1])


class ExportWriter:
    """Writes the seeds and pseudo-masks of images.

    Args:
        folder: Folder of the export, begun with `export_files.begin_export`.
        generator: Computes the maps.
        thresholds: Thresholds of the background.
        split: Name of the list that the images are put on.
        rank: Index of this process.
    """

    def __init__(
        self, folder: Path, generator: SeedGenerator, thresholds: Thresholds, split: str, rank: int = 0
    ) -> None:
        self.folder = folder
        self.generator = generator
        self.thresholds = thresholds
        self.split = split
        self.rank = rank
        self._finished = export_files.finished_names(folder)

    def add(self, batch: ImageBatch) -> None:
        """Write the images of a batch that are not in the folder yet."""
        names = [export_files.image_name(name, self.split) for name in batch.names]
        missing = [row for row, name in enumerate(names) if name not in self._finished]
        if missing:
            self._write(batch.rows(missing), [names[row] for row in missing])

    def _write(self, batch: ImageBatch, names: list[str]) -> None:
        maps = self.generator.generate(batch)
        truth = true_masks(batch, maps.present, self.generator.config.masks).cpu()
        seeds, refined, masks = self._masks(maps)
        height, width = truth.shape[1:]
        for row, name in enumerate(names):
            present = maps.present[row, maps.classes]
            if not maps.seeds[row].any():
                reason = NO_RELEVANCE if present.any() else NO_CLASS
                entry = export_files.skipped_entry(name, self.split, (height, width), reason)
                export_files.append_entry(self.folder, entry, self.rank)
                continue
            image = export_files.ExportedImage(
                name=name,
                split=self.split,
                classes=maps.classes[present].tolist(),
                maps=maps.refined[row, present],
                seeds=seeds[row],
                refined=refined[row],
                mask=masks[row],
                image=maps.rgb[row],
                truth=truth[row] if (truth[row] != IGNORED).any() else None,
            )
            export_files.write_image_files(self.folder, image, self._map_size(height, width), self.rank)

    def _masks(self, maps: SeedBatch) -> list[Tensor]:
        """Return seeds, refined maps at one threshold, and pseudo-masks, with 1 + class at each pixel."""
        if not len(maps.classes):
            # No image shows a class: all of them are skipped, and nothing reads these masks.
            return [torch.zeros(maps.seeds.shape[:1])] * 3
        margin = self.generator.config.margin
        middle = self.thresholds.masks
        labels = (
            label_map(maps.seeds, self.thresholds.seeds),
            label_map(maps.refined, middle),
            pseudo_masks(maps.refined, max(middle - margin, 0.0), min(middle + margin, 1.0)),
        )
        # The maps are of the classes in this batch only: 1 + place among them becomes 1 + class.
        return [number_classes(label, maps.classes).cpu() for label in labels]

    def _map_size(self, height: int, width: int) -> tuple[int, int]:
        # 224 pixels in patches of 16 give maps of 56 x 56: finer than relevance, much smaller than the image.
        patch_height, patch_width = patch_size(self.generator.model)
        rows = max(MAP_VALUES_PER_PATCH * height // patch_height, 1)
        columns = max(MAP_VALUES_PER_PATCH * width // patch_width, 1)
        return rows, columns


def _merge_and_score(folder: Path, classes: int) -> dict[str, dict[str, Any]]:
    export_files.merge_index(folder)
    return score_export(folder, classes)


def score_export(folder: Path, classes: int) -> dict[str, dict[str, Any]]:
    """Score the seeds and masks of an export over the images with a true mask: by split to scores.json, and each image.

    Args:
        folder: Folder of the export, whose index is merged.
        classes: How many classes there are, without the background.

    Returns:
        Per split `images`, `skipped`, `scored`, and of `seeds`, `refined` (one threshold) and `masks` (over the pixels
        that these decide): `mean_iou`, `foreground_mean_iou` and `per_class`; of `masks` also `decided`, the share of
        the pixels that are not ignored.
    """
    entries = export_files.read_index(folder)
    by_image: dict[str, dict[str, float]] = {}
    scores = {
        split: _score_split(folder, [entry for entry in entries if entry.split == split], classes, by_image)
        for split in sorted({entry.split for entry in entries})
    }
    write_json(folder / "scores.json", scores)
    write_json(folder / export_files.IMAGE_SCORES, by_image)
    return scores


def _score_split(
    folder: Path, entries: Sequence[export_files.Entry], classes: int, by_image: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Return the scores of a split, and add the mean IoU of each of its images, in [0, 1], by kind."""
    done = [entry.name for entry in entries if entry.status == "done"]
    names = [name for name in done if (folder / export_files.TRUTH / f"{name}.png").exists()]
    result: dict[str, Any] = {"images": len(done), "skipped": len(entries) - len(done), "scored": len(names)}
    if not names:
        return result
    # Only one process scores: it must not wait for the others.
    scores = {kind: MaskScore(classes, sync_on_compute=False) for kind in MASK_FOLDERS}
    for name in names:
        truth = read_mask(folder / export_files.TRUTH / f"{name}.png", classes=classes)
        for kind, score in scores.items():
            mask = read_mask(folder / MASK_FOLDERS[kind] / f"{name}.png", (truth.shape[0], truth.shape[1]), classes)
            # A pseudo-mask is judged on the pixels that it decides.
            expected = torch.where(mask == IGNORED, mask, truth) if kind == "masks" else truth
            score.update(mask[None], expected[None])
            by_image.setdefault(name, {})[kind] = _mean_iou(mask, expected, classes)
    values = {kind: score.compute() for kind, score in scores.items()}
    result |= {kind: to_lists(value) for kind, value in values.items()}
    result["masks"]["decided"] = float(values["masks"]["pixels"] / values["refined"]["pixels"])
    return result


def _mean_iou(mask: UInt8[Tensor, "height width"], truth: UInt8[Tensor, "height width"], classes: int) -> float:
    """Return the mean IoU over the classes that either mask has, and the background; nan where no pixel counts."""
    # In the first process alone: a sum over all processes would wait for the others.
    score = MaskScore(classes, sync_on_compute=False)
    score.update(mask[None], truth[None])
    return float(score.compute()["mean_iou"])


def to_lists(score: dict[str, Tensor]) -> dict[str, Any]:
    """Return what a `MaskScore` computes, without `pixels`, as numbers and lists for JSON."""
    return {name: value.tolist() for name, value in score.items() if name != "pixels"}
