"""Seeds and pseudo-masks of many images, batch by batch, into the files of an export."""

import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.annotations import IGNORED
from lrptrain.relevance.preserve import unwrap
from lrptrain.relevance.recording import read_logits
from lrptrain.segmentation import files
from lrptrain.segmentation.masks import ThresholdSweep, label_map, of_classes, pseudo_masks
from lrptrain.segmentation.reading import Pictures, labelled, true_masks
from lrptrain.segmentation.recipe import Recipe
from lrptrain.segmentation.refinement import Refinement, refinement
from lrptrain.segmentation.scoring import MaskScore
from lrptrain.segmentation.seeds import class_maps
from lrptrain.segmentation.sizes import any_size, patch_size

FINER = 4
"""Maps are kept with at most so many values per patch, each way."""
KINDS = {"seeds": files.SEEDS, "refined": files.REFINED, "masks": files.MASKS}
NO_CLASS, NO_RELEVANCE = "no class is present", "no relevance is positive"


@dataclass(frozen=True)
class Thresholds:
    """Of the background, for seeds and for refined maps."""

    seeds: float
    masks: float


@dataclass(frozen=True)
class Made:
    """What is made of a batch of images.

    Attributes:
        present: Which classes the images show.
        classes: Which of them have maps: those that any image shows.
        seeds: Before refinement, in 0..1.
        maps: After it.
        images: In 0..1.
    """

    present: Bool[Tensor, "batch classes"]
    classes: Int[Tensor, " some"]
    seeds: Float[Tensor, "batch some height width"]
    maps: Float[Tensor, "batch some height width"]
    images: Float[Tensor, "batch 3 height width"]


class Maker:
    """Makes seeds and refined maps by a recipe, of one model.

    Args:
        model: The classifier, in evaluation mode.
        recipe: How.
        classes: How many it knows.

    Raises:
        ValueError: If a mask has no room for so many classes, or a refinement does not take an option.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, classes: int) -> None:
        if classes >= IGNORED:
            raise ValueError(f"a mask has room for {IGNORED - 1} classes, and the model has {classes}")
        self.model, self.recipe, self.classes = unwrap(model), recipe, classes
        self._refine = self._refinement()

    def _refinement(self) -> Refinement | None:
        recipe = self.recipe
        if recipe.refine is None:
            return None
        looks = (recipe.mean, recipe.std) if recipe.mean is not None and recipe.std is not None else ()
        return refinement(recipe.refine, self.model, *looks, **recipe.refine_options)

    def make(self, pictures: Pictures) -> Made:
        """Seeds and refined maps of a batch.

        Raises:
            ValueError: If labels are needed and missing, or are no classes of the model.
        """
        present = self.present(pictures)
        classes = present.any(0).nonzero().flatten()
        rows, columns = present[:, classes].nonzero(as_tuple=True)
        how = self.recipe
        found = class_maps(
            self.model,
            pictures.images,
            rows,
            classes[columns],
            how.method,
            how.options,
            how.scales,
            how.flip,
            how.chunk,
        )
        seeds = found.new_zeros(len(present), len(classes), *found.shape[-2:])
        seeds[rows, columns] = found
        images = self._looks(pictures.images)
        return Made(present, classes, seeds, self._refined(pictures.images, images, seeds), images)

    def present(self, pictures: Pictures) -> Bool[Tensor, "batch classes"]:
        """Which classes the images show."""
        if self.recipe.present == "label":
            return labelled(pictures.shown, self.classes).to(pictures.images.device)
        logits = logits_of(self.model, pictures.images)
        if self.recipe.multi_label:
            return logits > 0
        return nn.functional.one_hot(logits.argmax(1), self.classes).bool()

    def _refined(self, given: Tensor, images: Tensor, seeds: Tensor) -> Tensor:
        if self._refine is None or not seeds.numel():
            return seeds
        # Without mean and std the model's own images are all that it can be given.
        of_model = self.recipe.refine == "attention_affinity" and self.recipe.mean is None
        with torch.no_grad():
            return self._refine(given if of_model else images, seeds)

    def _looks(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 3 height width"]:
        images = images.float()
        if self.recipe.mean is None or self.recipe.std is None:
            low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
            return (images - low) / (high - low).clamp(min=1e-8)
        mean, std = (images.new_tensor(values).view(3, 1, 1) for values in (self.recipe.mean, self.recipe.std))
        return (images * std + mean).clamp(0, 1)


def logits_of(model: nn.Module, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch classes"]:
    """The model's answer, without a graph."""
    with torch.inference_mode(False), torch.no_grad(), any_size(model):
        return read_logits(model(images.clone()), len(images)).float()


def weights_key(model: nn.Module) -> str:
    """Tells models of other weights apart."""
    found = 0
    for tensor in unwrap(model).state_dict().values():
        if isinstance(tensor, Tensor):
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            found = zlib.crc32(flat.numpy().tobytes(), found)
    return f"{found:08x}"


def settings_of(maker: Maker) -> dict[str, Any]:
    """What an export can go on with: the recipe and the weights."""
    return {**asdict(maker.recipe), "scales": list(maker.recipe.scales), "weights": weights_key(maker.model)}


def sweeps(maker: Maker, batches: Iterable[Pictures]) -> tuple[Int[Tensor, "..."], Int[Tensor, "..."]]:
    """What `ThresholdSweep` counts of the seeds and of the refined maps, over the images with a true mask."""
    seeds, maps = ThresholdSweep(maker.classes), ThresholdSweep(maker.classes)
    for pictures in batches:
        truth = true_masks(pictures, maker.present(pictures), maker.recipe.masks)
        rows = (truth != IGNORED).flatten(1).any(1).nonzero().flatten().tolist()
        if not rows:
            continue
        made, known = maker.make(pictures.rows(rows)), truth[rows]
        if len(made.classes):
            seeds.update(made.seeds, known, made.classes)
            maps.update(made.maps, known, made.classes)
    return seeds.counts, maps.counts


def best_thresholds(classes: int, counts: tuple[Tensor, Tensor]) -> Thresholds:
    """The best threshold for each.

    Raises:
        ValueError: If no image had a true mask.
    """
    found = []
    for own in counts:
        sweep = ThresholdSweep(classes)
        sweep.counts = own
        if not int(own.sum()):
            raise ValueError("no validation image has a true mask, on which a threshold could be chosen: give one")
        found.append(sweep.best()[0])
    return Thresholds(*found)


class Export:
    """Writes seeds and pseudo-masks of images.

    Args:
        folder: Of the export, begun with `files.begin`.
        maker: Makes them.
        thresholds: Of the background.
        split: In whose list the images go.
        rank: Of this process.
    """

    def __init__(self, folder: Path, maker: Maker, thresholds: Thresholds, split: str, rank: int = 0) -> None:
        self.folder, self.maker, self.thresholds = folder, maker, thresholds
        self.split, self.rank = split, rank
        self._finished = files.finished(folder)

    def add(self, pictures: Pictures) -> None:
        """Write the images of a batch that are not there yet."""
        names = [files.image_name(name, self.split) for name in pictures.names]
        missing = [row for row, name in enumerate(names) if name not in self._finished]
        if missing:
            self._write(pictures.rows(missing), [names[row] for row in missing])

    def _write(self, pictures: Pictures, names: list[str]) -> None:
        made = self.maker.make(pictures)
        truth = true_masks(pictures, made.present, self.maker.recipe.masks).cpu()
        seeds, refined, masks = self._masks(made)
        for row, name in enumerate(names):
            own = made.present[row, made.classes]
            reason = "" if made.seeds[row].any() else NO_RELEVANCE if own.any() else NO_CLASS
            if reason:
                size = (truth.shape[1], truth.shape[2])
                files.add(self.folder, files.skipped(name, self.split, size, reason), self.rank)
                continue
            given = files.Exported(
                name, self.split, made.classes[own].tolist(), made.maps[row, own], seeds[row], refined[row], masks[row],
                made.images[row], truth[row] if (truth[row] != IGNORED).any() else None,
            )  # fmt: skip
            files.write(self.folder, given, self._map_size(truth.shape[1], truth.shape[2]), self.rank)

    def _masks(self, made: Made) -> list[Tensor]:
        """Seeds, refined maps at one threshold, and pseudo-masks, with the numbers of the classes."""
        if not len(made.classes):
            return [torch.zeros(made.seeds.shape[:1])] * 3
        margin, middle = self.maker.recipe.margin, self.thresholds.masks
        found = (
            label_map(made.seeds, self.thresholds.seeds),
            label_map(made.maps, middle),
            pseudo_masks(made.maps, max(middle - margin, 0.0), min(middle + margin, 1.0)),
        )
        return [of_classes(mask, made.classes).cpu() for mask in found]

    def _map_size(self, height: int, width: int) -> tuple[int, int]:
        steps = patch_size(self.maker.model)
        return max(FINER * height // steps[0], 1), max(FINER * width // steps[1], 1)


def score_export(folder: Path, classes: int) -> dict[str, dict[str, Any]]:
    """Mean IoU of an export's seeds and masks by split, over the images with a true mask; also written to scores.json.

    Args:
        folder: Of the export, merged.
        classes: How many, without the background.

    Returns:
        Per split `images`, `skipped`, `scored`, and of `seeds`, `refined` (one threshold) and `masks` (where ignored
        pixels miss): `mean_iou`, `foreground_mean_iou` and `per_class`.
    """
    entries, found = files.read_index(folder), dict[str, dict[str, Any]]()
    for split in sorted({entry.split for entry in entries}):
        own = [entry for entry in entries if entry.split == split]
        # One process counts: it must not wait for the others.
        scores = {kind: MaskScore(classes, sync_on_compute=False) for kind in KINDS}
        scored = [
            one.name for one in own if one.status == "done" and (folder / files.TRUTH / f"{one.name}.png").exists()
        ]
        for name in scored:
            truth = files.read_mask(folder / files.TRUTH / f"{name}.png", classes=classes)
            for kind, score in scores.items():
                mask = files.read_mask(folder / KINDS[kind] / f"{name}.png", (truth.shape[0], truth.shape[1]), classes)
                score.update(mask[None], truth[None])
        done = sum(entry.status == "done" for entry in own)
        found[split] = {"images": done, "skipped": len(own) - done, "scored": len(scored)}
        found[split] |= {kind: plain(score.compute()) for kind, score in scores.items() if scored}
    files.write_json(folder / "scores.json", found)
    return found


def plain(score: dict[str, Tensor]) -> dict[str, Any]:
    """What a `MaskScore` computes, for JSON."""
    return {name: value.tolist() for name, value in score.items() if name != "pixels"}
