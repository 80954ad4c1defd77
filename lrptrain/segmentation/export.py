"""Seeds and pseudo-masks of many images, batch by batch, into the files of an export."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.files import write_json
from lrptrain.segmentation import files
from lrptrain.segmentation.maker import Made, Maker, weights_key
from lrptrain.segmentation.mask_files import read_mask
from lrptrain.segmentation.masks import ThresholdSweep, label_map, of_classes, pseudo_masks
from lrptrain.segmentation.reading import Pictures, true_masks
from lrptrain.segmentation.scoring import MaskScore
from lrptrain.segmentation.sizes import patch_size

FINER = 4
"""Maps are kept with at most so many values per patch, each way."""
KINDS = {"seeds": files.SEEDS, "refined": files.REFINED, "masks": files.MASKS}
NO_CLASS, NO_RELEVANCE = "no class is present", "no relevance is positive"


@dataclass(frozen=True)
class Thresholds:
    """Of the background, for seeds and for refined maps."""

    seeds: float
    masks: float


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
        Per split `images`, `skipped`, `scored`, and of `seeds`, `refined` (one threshold) and `masks` (over the pixels
        that these decide): `mean_iou`, `foreground_mean_iou` and `per_class`; of `masks` also `decided`, the share of
        the pixels that are not ignored.
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
            truth = read_mask(folder / files.TRUTH / f"{name}.png", classes=classes)
            for kind, score in scores.items():
                mask = read_mask(folder / KINDS[kind] / f"{name}.png", (truth.shape[0], truth.shape[1]), classes)
                known = torch.where(mask == IGNORED, mask, truth) if kind == "masks" else truth
                score.update(mask[None], known[None])
        done = sum(entry.status == "done" for entry in own)
        found[split] = {"images": done, "skipped": len(own) - done, "scored": len(scored)}
        if scored:
            values = {kind: score.compute() for kind, score in scores.items()}
            found[split] |= {kind: plain(value) for kind, value in values.items()}
            found[split]["masks"]["decided"] = float(values["masks"]["pixels"] / values["refined"]["pixels"])
    write_json(folder / "scores.json", found)
    return found


def plain(score: dict[str, Tensor]) -> dict[str, Any]:
    """What a `MaskScore` computes, for JSON."""
    return {name: value.tolist() for name, value in score.items() if name != "pixels"}
