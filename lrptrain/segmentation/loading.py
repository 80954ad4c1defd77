"""A process' share of a dataloader's images, each of them once."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from lrptrain.batch import BatchAdapter
from lrptrain.segmentation.reading import Pictures, read_pictures


def pictures(
    loader: Any,
    rank: int = 0,
    size: int = 1,
    adapter: BatchAdapter | None = None,
    place: Callable[[Any], Any] = lambda batch: batch,
) -> Iterator[Pictures]:
    """Batches of a process. Images without a `sample_id` have the name of their number in the dataset.

    Images that a plain dataloader shuffles, or deals out to processes, are taken in the dataset's order, none of them
    twice. A dataloader with a sampler of its own, or of a stream, is iterated as it is. Random states of the
    dataloader are left alone; the global one is left to the caller.

    Args:
        loader: Of batches as `read_pictures` takes them.
        rank: Of this process.
        size: How many there are.
        adapter: Brings a batch of another form to the names of the contract.
        place: Moves a batch to the model's device.
    """
    ordered = _in_order(loader, rank, size)
    # What a distributed sampler pads lies beyond its dataset.
    sampler = getattr(loader, "sampler", None)
    last = len(sampler.dataset) if isinstance(sampler, DistributedSampler) else float("inf")  # type: ignore[arg-type]
    passed = 0
    with _generators_kept(loader):
        for batch in loader if ordered is None else ordered:
            numbers = range(passed * size + rank, sys.maxsize, size)
            found = read_pictures(place(batch), numbers.__getitem__, adapter)
            passed += len(found.images)
            rows = [row for row in range(len(found.images)) if numbers[row] < last]
            yield found if len(rows) == len(found.images) else found.rows(rows)


def _in_order(loader: Any, rank: int, size: int) -> DataLoader[Any] | None:
    """The same images in the dataset's order, those of one process; None if the dataloader does not say which."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return None
    sampler: Any = loader.sampler
    dealt = isinstance(sampler, DistributedSampler) and sampler.dataset is loader.dataset
    if not dealt and type(sampler) not in (SequentialSampler, RandomSampler):
        return None
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=range(rank, len(loader.dataset), size),  # type: ignore[arg-type]
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator().manual_seed(0),
    )


@contextmanager
def _generators_kept(loader: Any) -> Iterator[None]:
    """Set the generators of a dataloader and its sampler back afterwards."""
    owners = (loader, getattr(loader, "sampler", None))
    own = [each for each in (getattr(owner, "generator", None) for owner in owners) if each is not None]
    states = [generator.get_state() for generator in own]
    try:
        yield
    finally:
        for generator, state in zip(own, states, strict=True):
            generator.set_state(state)
