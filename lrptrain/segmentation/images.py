"""The images that an export reads: batches of a dataloader, each image once, with labels and true masks."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from lrptrain.batch import IMAGES, BatchAdapter, read_batch
from lrptrain.batch.annotations import IGNORED


@dataclass(frozen=True)
class ImageBatch:
    """A batch of images.

    Attributes:
        images: The images as the model reads them.
        names: One name per image, of its files.
        labels: A class per image (negative: none), or one 0 or 1 per class; None if the batch has no labels.
        masks: True masks as the batch has them, `[batch, height, width]`, or one for each region, of which the first is
            the evidence, `[batch, regions, height, width]`; None if it has none.
    """

    images: Float[Tensor, "batch 3 height width"]
    names: Sequence[int | str]
    labels: Tensor | None
    masks: Tensor | None

    def rows(self, rows: Sequence[int]) -> "ImageBatch":
        """Return some of the images."""
        chosen = list(rows)
        return ImageBatch(
            images=self.images[chosen],
            names=[self.names[row] for row in chosen],
            labels=None if self.labels is None else self.labels[chosen],
            masks=None if self.masks is None else self.masks[chosen],
        )


def read_images(batch: Any, number: Callable[[int], int] = int, adapter: BatchAdapter | None = None) -> ImageBatch:
    """Read a batch in the form that the callbacks take; labels may also be one 0 or 1 per class.

    Args:
        batch: See `lrptrain.batch.read_batch`.
        number: Returns the number of a row's image in the dataset, which is its name without a `sample_id`.
        adapter: Brings a batch of another form to the names of the contract.

    Raises:
        ValueError: If there is no image, or entries differ in length.
    """
    batch = adapter(batch) if adapter is not None else batch
    # `read_batch` takes one class per image: labels with a column per class are taken out before.
    multi_label: Tensor | None = None
    if isinstance(batch, Sequence) and len(batch) > 1 and getattr(batch[1], "ndim", 1) == 2:
        first, multi_label, *rest = batch
        batch = (first, None, *rest)
    elif isinstance(batch, Mapping):
        multi_label = next((batch[key] for key in ("label", "labels") if getattr(batch.get(key), "ndim", 1) == 2), None)
        if multi_label is not None:
            batch = {key: value for key, value in batch.items() if key not in ("label", "labels")}
    entries = read_batch(batch)
    images = next((entries[name] for name in IMAGES if name in entries), None)
    if images is None or images.ndim != 4:
        raise ValueError(
            "seeds are made of images: the batch has no 'image' or 'pixel_values' [batch, 3, height, width]"
        )
    if multi_label is not None and len(multi_label) != len(images):
        raise ValueError(f"the entries of a batch differ in length: {len(images)} images, {len(multi_label)} labels")
    return ImageBatch(
        images=images,
        names=entries.get("sample_id", [number(row) for row in range(len(images))]),
        labels=entries.get("label") if multi_label is None else multi_label,
        masks=entries.get("mask"),
    )


def classes_of_labels(labels: Tensor | None, classes: int) -> Bool[Tensor, "batch classes"]:
    """Return whether each image shows each class, by its label.

    Args:
        labels: See `ImageBatch`.
        classes: How many classes the model has.

    Raises:
        ValueError: If there is no label, or a label is no class of the model.
    """
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
    evidence: nobody can tell of which class the evidence is.

    Args:
        batch: With masks, or without.
        present: Whether each image shows each class.
        content: What the masks hold, see `PseudoMaskConfig.masks`.

    Raises:
        ValueError: If a mask has another form, or another value.
    """
    size = batch.images.shape[-2:]
    highest_known = 1 if content == "evidence" else present.shape[1]
    if batch.masks is None:
        return torch.full((len(present), *size), IGNORED, dtype=torch.uint8, device=present.device)
    masks = batch.masks.to(present.device)
    if masks.ndim == 4 and (content == "evidence" or masks.shape[1] == 1):
        masks = masks[:, 0]
    if masks.ndim != 3:
        regions = ", or [batch, regions, height, width] of which the first is it" if content == "evidence" else ""
        raise ValueError(f"mask {list(masks.shape)} must be [batch, height, width] of the {content}{regions}")
    if masks.shape[-2:] != size:
        masks = F.interpolate(masks[:, None].float(), size, mode="nearest-exact")[:, 0]
    masks = masks.to(torch.uint8)
    highest = int((masks * (masks != IGNORED)).max())
    if highest > highest_known:
        hint = ", or masks='classes' if they hold 1 + class" if content == "evidence" else ""
        raise ValueError(f"a mask has the value {highest}: 0..{highest_known} and 255 (ignored) are known{hint}")
    if content == "classes":
        return masks
    value = (present.long().argmax(1) + 1).to(torch.uint8)[:, None, None]
    single = (present.sum(1) == 1)[:, None, None]
    return torch.where(masks == 1, value, masks).masked_fill(~single, IGNORED)


def image_batches(
    loader: Any,
    rank: int = 0,
    world_size: int = 1,
    adapter: BatchAdapter | None = None,
    to_device: Callable[[Any], Any] = lambda batch: batch,
) -> Iterator[ImageBatch]:
    """Yield the batches of one process. Images without a `sample_id` are named by their number in the dataset.

    Images that a plain dataloader shuffles, or deals out to processes, are read in the dataset's order, each of them
    once. A dataloader with a sampler of its own, or of a stream, is iterated as it is. The random states of the
    dataloader stay as they are; the global one is left to the caller.

    Args:
        loader: A dataloader of batches as `read_images` takes them.
        rank: Index of this process.
        world_size: Number of processes.
        adapter: Brings a batch of another form to the names of the contract.
        to_device: Moves a batch to the model's device.
    """
    ordered = _in_order(loader, rank, world_size)
    # A distributed sampler repeats samples until all processes have as many; what it repeats lies beyond its dataset.
    sampler = getattr(loader, "sampler", None)
    last = len(sampler.dataset) if isinstance(sampler, DistributedSampler) else float("inf")  # type: ignore[arg-type]
    passed = 0
    with _restored_generators(loader):
        for raw in loader if ordered is None else ordered:
            # Process 1 of 2 reads images 1, 3, 5 ...
            numbers = range(passed * world_size + rank, sys.maxsize, world_size)
            batch = read_images(to_device(raw), numbers.__getitem__, adapter)
            passed += len(batch.images)
            rows = [row for row in range(len(batch.images)) if numbers[row] < last]
            yield batch if len(rows) == len(batch.images) else batch.rows(rows)


def _in_order(loader: Any, rank: int, world_size: int) -> DataLoader[Any] | None:
    """Return a loader of one process' images in the dataset's order; None if the loader does not say which they are."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return None
    sampler: Any = loader.sampler
    is_distributed = isinstance(sampler, DistributedSampler) and sampler.dataset is loader.dataset
    if not is_distributed and type(sampler) not in (SequentialSampler, RandomSampler):
        return None
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=range(rank, len(loader.dataset), world_size),  # type: ignore[arg-type]
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator().manual_seed(0),
    )


@contextmanager
def _restored_generators(loader: Any) -> Iterator[None]:
    """Set the generators of a dataloader and its sampler back afterwards."""
    owners = (loader, getattr(loader, "sampler", None))
    attributes = [getattr(owner, "generator", None) for owner in owners]
    generators = [generator for generator in attributes if generator is not None]
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
