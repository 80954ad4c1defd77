"""The images that an export reads: batches of a dataloader, each image once, with labels and true masks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from lrptrain.batch import IMAGES, BatchAdapter
from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.reading import read_columns
from lrptrain.monitor.loader_pass import read_once
from lrptrain.trainers.processes import rank_and_size


@dataclass(frozen=True)
class ImageBatch:
    """A batch of images as the model takes them, and the names of their files.

    Labels are a class per image (negative: none), or one 0 or 1 per class; true masks `[batch, height, width]`, or one
    for each region, of which the first is the evidence, `[batch, regions, height, width]`.
    """

    images: Float[Tensor, "batch 3 height width"]
    names: Sequence[int | str]
    labels: Tensor | None
    masks: Tensor | None

    def rows(self, rows: Sequence[int]) -> "ImageBatch":
        """Return some of the images."""
        labels, masks = (None if column is None else column[rows] for column in (self.labels, self.masks))
        return ImageBatch(self.images[rows], [self.names[row] for row in rows], labels, masks)


def read_images(batch: Any, numbers: Iterator[int] | None = None, adapter: BatchAdapter | None = None) -> ImageBatch:
    """Read a batch as `lrptrain.batch.read_batch` does; labels may also be one 0 or 1 per class.

    Without a `sample_id` the images are named by the next of `numbers`; None for 0, 1, ...
    """
    entries = read_columns(batch, adapter)
    images = next((entries[name] for name in IMAGES if name in entries), None)
    if images is None or images.ndim != 4:
        raise ValueError("seeds are made of images: the batch needs an 'image' or 'pixel_values' [batch, 3, h, w]")
    own = list(islice(count() if numbers is None else numbers, len(images)))
    return ImageBatch(images, entries.get("sample_id", own), entries.get("label"), entries.get("mask"))


def classes_of_labels(labels: Tensor | None, classes: int) -> Bool[Tensor, "batch classes"]:
    """Return whether each image shows each of so many classes, by its label; refuse one that is no class."""
    if labels is None:
        raise ValueError("the batches have no label: give them one, or take present='predicted'")
    if labels.ndim == 2:
        if labels.shape[1] != classes:
            raise ValueError(f"labels have {labels.shape[1]} classes, the model has {classes}")
        return labels > 0.5
    if classes == 1 and labels.numel() and int(labels.max()) <= 1:  # one logit: the label says whether it is there
        return (labels == 1)[:, None]
    if labels.numel() and int(labels.max()) >= classes:
        raise ValueError(f"the label {int(labels.max())} is no class of the model, which has {classes}")
    return F.one_hot(labels.long().clamp(min=0), classes).bool() & (labels >= 0)[:, None]


def true_masks(
    batch: ImageBatch, present: Bool[Tensor, "batch classes"], content: Literal["evidence", "classes"]
) -> UInt8[Tensor, "batch height width"]:
    """Return true masks at the images' size (nearest): 0 background, 1 + class, 255 ignored.

    An image without a mask has 255 everywhere. So has an image of several classes, or of none, where masks hold
    evidence: nobody can tell of which class the evidence is. `content`: see `PseudoMaskConfig.masks`.
    """
    size = batch.images.shape[-2:]
    if batch.masks is None:
        return torch.full((len(present), *size), IGNORED, dtype=torch.uint8, device=present.device)
    masks = batch.masks.to(present.device)
    of_evidence = content == "evidence"
    if masks.ndim == 4 and (of_evidence or masks.shape[1] == 1):
        masks = masks[:, 0]
    if masks.ndim != 3:
        regions = ", or [batch, regions, height, width] of which the first is it" if of_evidence else ""
        raise ValueError(f"mask {list(masks.shape)} must be [batch, height, width] of the {content}{regions}")
    if masks.shape[-2:] != size:
        masks = F.interpolate(masks[:, None].float(), size, mode="nearest-exact")[:, 0]
    masks = masks.to(torch.uint8)
    highest, known = int((masks * (masks != IGNORED)).max()), 1 if of_evidence else present.shape[1]
    if highest > known:
        hint = ", or masks='classes' if they hold 1 + class" if of_evidence else ""
        raise ValueError(f"a mask has the value {highest}: 0..{known} and 255 (ignored) are known{hint}")
    if not of_evidence:
        return masks
    value = (present.long().argmax(1) + 1).to(torch.uint8)[:, None, None]
    single = (present.sum(1) == 1)[:, None, None]
    return torch.where(masks == 1, value, masks).masked_fill(~single, IGNORED)


def image_batches(
    loader: Any, adapter: BatchAdapter | None = None, to_device: Callable[[Any], Any] = lambda batch: batch
) -> Iterator[ImageBatch]:
    """Return the batches of this process, each image once, in the dataset's order. All processes call it together.

    Images without a `sample_id` are named by their number in the dataset, or, where the loader does not say which
    they are, in the order in which they come. The loader stays as it is; the global random state is left to the caller.
    """
    if getattr(loader, "drop_last", False) and type(loader.sampler) in (RandomSampler, SequentialSampler):
        # A training loader leaves images out at the end of an epoch, an export does not.
        options = {"collate_fn": loader.collate_fn, "num_workers": loader.num_workers}
        loader = DataLoader(loader.dataset, loader.batch_size, worker_init_fn=loader.worker_init_fn, **options)
    placed = read_once(loader, batch_size=16)  # here, not at the first batch: all processes meet in it
    rank, size = rank_and_size()
    counted = count(rank, size)  # process 1 of 2 reads images 1, 3, 5 ... of a stream
    return (
        read_images(to_device(batch), counted if places is None else iter(places.tolist()), adapter)
        for batch, places in placed
    )
