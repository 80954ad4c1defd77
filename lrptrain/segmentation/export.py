"""Seeds and pseudo-masks of many images, batch by batch, into the files of an export, in one process or several."""

import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from tqdm.auto import tqdm

from lrptrain.batch.annotations import IGNORED
from lrptrain.data.pictures import read_mask
from lrptrain.files import write_json
from lrptrain.relevance.default import DEFAULT_METHODS
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.segmentation import export_files
from lrptrain.segmentation.config import DEFAULT_THRESHOLD, PseudoMaskConfig
from lrptrain.segmentation.images import ImageBatch, classes_of_labels, true_masks
from lrptrain.segmentation.masks import ThresholdSweep, label_map, pseudo_masks
from lrptrain.segmentation.refinement import pixel_adaptive
from lrptrain.segmentation.scoring import MaskScore
from lrptrain.segmentation.seeds import seed_maps
from lrptrain.segmentation.sizes import any_size
from lrptrain.terminal import WrappedWarning
from lrptrain.trainers.processes import gather, in_every_process, rank_and_size

MASK_FOLDERS = {"seeds": export_files.SEEDS, "refined": export_files.REFINED, "masks": export_files.MASKS}

ImageSource = Callable[[], Iterator[ImageBatch]]
"""Returns the images of this process anew at each call, at which all processes meet."""


@dataclass(frozen=True)
class SeedBatch:
    """Maps in 0..1, before refinement and after, of the classes that some image shows (3 of 200, say); 0 elsewhere."""

    present: Bool[Tensor, "batch classes"]
    classes: Int[Tensor, " some"]
    seeds: Float[Tensor, "batch some height width"]
    refined: Float[Tensor, "batch some height width"]
    rgb: Float[Tensor, "batch 3 height width"]


class SeedGenerator:
    """Computes seeds and refined maps with a classifier in evaluation mode, which has so many classes."""

    def __init__(self, model: nn.Module, config: PseudoMaskConfig, classes: int) -> None:
        if classes >= IGNORED:
            raise ValueError(f"a mask has room for {IGNORED - 1} classes, and the model has {classes}")
        self.model = unwrap(model)
        self.config = config
        self.classes = classes

    def generate(self, batch: ImageBatch) -> SeedBatch:
        """Compute the seeds and refined maps of a batch."""
        config, present = self.config, self.present(batch)
        classes = present.any(0).nonzero().flatten()
        views = config.method, config.options, config.scales, config.flip, config.chunk
        seeds = seed_maps(self.model, batch.images, present[:, classes], *views, classes)
        rgb = self._rgb(batch.images)
        refined = seeds
        if config.refine is not None and seeds.numel():
            with torch.no_grad():
                refined = pixel_adaptive(rgb, seeds, **config.refine_options)
        return SeedBatch(present, classes, seeds, refined, rgb)

    def present(self, batch: ImageBatch) -> Bool[Tensor, "batch classes"]:
        """Return whether each image shows each class, by its label or by the model's prediction."""
        if self.config.present == "label":
            return classes_of_labels(batch.labels, self.classes).to(batch.images.device)
        logits = compute_logits(self.model, batch.images)
        if self.config.multi_label or self.classes == 1:
            return logits > 0
        return nn.functional.one_hot(logits.argmax(1), self.classes).bool()

    def _rgb(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 3 height width"]:
        """Undo the normalisation; without mean and std, stretch each image from its minimum to its maximum."""
        images = images.float()
        if self.config.mean is None or self.config.std is None:
            low, high = (bound((1, 2, 3), keepdim=True) for bound in (images.amin, images.amax))
            return (images - low) / (high - low).clamp(min=1e-8)
        mean, std = (images.new_tensor(values).view(3, 1, 1) for values in (self.config.mean, self.config.std))
        return (images * std + mean).clamp(0, 1)


def compute_logits(model: nn.Module, images: Tensor) -> Float[Tensor, "batch classes"]:
    """Return the model's logits, without a graph."""
    with torch.inference_mode(False), torch.no_grad(), any_size(model):
        # A clone, since tensors from inference mode stay inference tensors outside of it.
        return read_logits(model(images.clone()), len(images)).float()


def weights_checksum(model: nn.Module) -> str:
    """Return a CRC-32 of all weights and buffers: models with other weights have another one."""
    checksum = 0
    for tensor in unwrap(model).state_dict().values():
        if isinstance(tensor, Tensor):
            # Bytes, whatever the type: numpy has no bfloat16.
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            checksum = zlib.crc32(flat.numpy().tobytes(), checksum)
    return f"{checksum:08x}"


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
    """Write the seeds and pseudo-masks of images that are not in the folder yet, and return what `score_export` does.

    All processes call it together, with one folder. The images are put on the list `split`; on those of `validation`
    the threshold is chosen if the config has none. The model is in evaluation mode.

    Raises:
        ValueError: If there is no image, or the folder holds an export with other settings.
        RuntimeError: If another process failed.
    """
    is_first = rank_and_size()[0] == 0
    bar = partial(tqdm, unit=" batches", disable=not (progress and is_first))
    images = source()
    # A process without images counts 0 classes and takes the number from the others.
    classes = max(gather(in_every_process(lambda: _count_classes(model, images))))
    if not classes:
        raise ValueError(f"there is no image to export in the split {split!r}")
    generator = in_every_process(lambda: SeedGenerator(model, config, classes))
    # The default method may be another one in a later version of the library: its name, not None, is what stays.
    settings = {**asdict(config), "method": config.method or DEFAULT_METHODS[0], "weights": weights_checksum(model)}
    in_every_process(lambda: export_files.begin_export(folder, settings, class_names(classes)) if is_first else None)
    thresholds = _thresholds(folder, generator, validation, bar)
    images = bar(source(), f"Masks of the {split} images")
    try:
        in_every_process(lambda: _write(folder, generator, thresholds, split, images))
    finally:  # files that are complete count even if a process failed, and all processes come here
        scores = in_every_process(lambda: score_export(folder, classes) if is_first else {})
    return gather(scores)[0]


def _count_classes(model: nn.Module, images: Iterator[ImageBatch]) -> int:
    """Return how many logits the model gives for the first image; 0 if there is no image."""
    first = next((batch for batch in images if len(batch.images)), None)
    return 0 if first is None else compute_logits(model, first.images[:1]).shape[1]


def _thresholds(
    folder: Path, generator: SeedGenerator, validation: ImageSource | None, bar: Callable[..., Any]
) -> dict[str, float]:
    """Return the thresholds: of the config, the folder, the best on the validation images, or, with a warning, 0.3."""
    kinds = ("seeds", "masks")
    if generator.config.threshold is not None:
        return dict.fromkeys(kinds, generator.config.threshold)
    is_first = rank_and_size()[0] == 0
    path = folder / "thresholds.json"
    # One process looks, and all follow: the file may be written just then, and they must agree.
    saved = gather(export_files.read_json_file(path) if is_first and path.exists() else None)[0]
    if saved is not None:
        return saved
    thresholds = dict.fromkeys(kinds, DEFAULT_THRESHOLD)
    sweeps = [ThresholdSweep(generator.classes) for _ in kinds]
    if validation is not None:
        images = bar(validation(), "Threshold, on the validation images")
        in_every_process(lambda: _sweep(generator, images, sweeps))
    for kind, sweep in zip(kinds, sweeps, strict=True):
        # Counts can be summed over processes, thresholds cannot.
        sweep.counts = torch.stack(gather(sweep.counts)).sum(0)
        if int(sweep.counts.sum()):
            thresholds[kind] = sweep.best()[0]
    if is_first and not int(sweeps[0].counts.sum()):
        warnings.warn(
            f"no validation image has a true mask on which the background's threshold could be chosen: it is "
            f"{DEFAULT_THRESHOLD}; look at some masks, and set `threshold` in the config if another fits better",
            WrappedWarning,
            stacklevel=2,
        )
    if is_first:
        write_json(path, thresholds)
    return thresholds


def _sweep(generator: SeedGenerator, images: Iterable[ImageBatch], sweeps: Sequence[ThresholdSweep]) -> None:
    """Count seeds and refined maps of the images that have a true mask; the maps of others are not computed."""
    for batch in images:
        truth = true_masks(batch, generator.present(batch), generator.config.masks)
        rows = (truth != IGNORED).flatten(1).any(1).nonzero().flatten().tolist()
        if rows:
            maps = generator.generate(batch.rows(rows))
            for sweep, own in zip(sweeps, (maps.seeds, maps.refined), strict=True):
                if len(maps.classes):
                    sweep.update(own, truth[rows], maps.classes)


def _write(
    folder: Path, generator: SeedGenerator, thresholds: dict[str, float], split: str, images: Iterable[ImageBatch]
) -> None:
    """Write the seeds and pseudo-masks of the images that are not in the folder yet."""
    finished, rank = export_files.finished_names(folder), rank_and_size()[0]
    taken = {entry.name for entry in export_files.read_index(folder) if entry.split != split}
    middle, margin = thresholds["masks"], generator.config.margin
    for batch in images:
        names = [export_files.image_name(name, split) for name in batch.names]
        if again := sorted(taken.intersection(names)):
            raise ValueError(
                f"two images are called {again[0]!r}, one of them of the {split} split: each needs a sample_id of "
                f"its own, such as '{split}/{again[0]}'"
            )
        missing = [row for row, name in enumerate(names) if name not in finished]
        if not missing:
            continue
        batch = batch.rows(missing)
        maps = generator.generate(batch)
        truth = true_masks(batch, maps.present, generator.config.masks).cpu()
        masks: dict[str, Tensor] = {}
        if len(maps.classes):
            low, high = (1 - margin) * middle, min((1 + margin) * middle, 1.0)
            masks[export_files.SEEDS] = label_map(maps.seeds, thresholds["seeds"], maps.classes)
            masks[export_files.REFINED] = label_map(maps.refined, middle, maps.classes)
            masks[export_files.MASKS] = pseudo_masks(maps.refined, low, high, maps.classes)
        for row, name in enumerate(names[number] for number in missing):
            classes = maps.classes[maps.present[row, maps.classes]].tolist()
            entry = export_files.Entry(name, split, tuple(classes), (truth.shape[1], truth.shape[2]))
            if not maps.seeds[row].any():
                reason = "no relevance is positive" if classes else "no class is present"
                export_files.append_entry(folder, replace(entry, classes=(), status="skipped", reason=reason), rank)
                continue
            pictures = {kind: own[row] for kind, own in (masks | {export_files.JPEG_IMAGES: maps.rgb}).items()}
            if (truth[row] != IGNORED).any():
                pictures[export_files.TRUTH] = truth[row]
            export_files.write_image_files(folder, entry, pictures, rank)


def score_export(folder: Path, classes: int) -> dict[str, dict[str, Any]]:
    """Merge the index of an export, and score it by split and by image, over the images with a true mask.

    Returns:
        Per split `images`, `skipped`, `scored`, and of `seeds`, `refined` (one threshold) and `masks` (over the pixels
        that these decide): `mean_iou` and `per_class`; of `masks` also `decided`, the share of
        the pixels that are not ignored.
    """
    entries = export_files.merge_index(folder)
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
    # Only one process scores: it must not wait for the others.
    scores = {kind: MaskScore(classes, sync_on_compute=False) for kind in MASK_FOLDERS if names}
    for name in names:
        truth = read_mask(folder / export_files.TRUTH / f"{name}.png", classes=classes)
        for kind, score in scores.items():
            mask = read_mask(folder / MASK_FOLDERS[kind] / f"{name}.png", (truth.shape[0], truth.shape[1]), classes)
            # A pseudo-mask is judged on the pixels that it decides.
            expected = torch.where(mask == IGNORED, mask, truth) if kind == "masks" else truth
            # Also the image's own: over the classes that either mask has, and the background.
            by_image.setdefault(name, {})[kind] = float(score(mask[None], expected[None])["mean_iou"])
    values = {kind: score.compute() for kind, score in scores.items()}
    result |= {kind: to_lists(value) for kind, value in values.items()}
    if names:
        result["masks"]["decided"] = float(values["masks"]["pixels"] / values["refined"]["pixels"])
    return result


def to_lists(score: dict[str, Tensor]) -> dict[str, Any]:
    """Return what a `MaskScore` computes as numbers and lists for JSON."""
    return {name: value.tolist() for name, value in score.items() if name != "pixels"}
