"""One pass over a user's loader, which leaves the loader, its samplers and their generators as they were."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, SequentialSampler, Subset

from lrptrain.trainers.processes import gather, rank_and_size


class PlacedBatch(NamedTuple):
    """A batch, and the index of each sample in the dataset; None if only the order of the batches tells."""

    batch: Any
    places: Int[np.ndarray, " batch"] | None


def read_once(samples: Any, batch_size: int) -> Iterator[PlacedBatch]:
    """Return the batches of this process, in the order of the set, whatever order the loader has.

    All processes must call it at the same time.

    The set is that of the samples that the loader gives in all processes, each once: those that a sampler leaves out
    stay out. Where it cannot be asked for single samples, its batches come in its own order.
    """
    if _is_set(samples):
        samples = DataLoader(samples, batch_size)
    if has_places(samples):
        return _by_places(samples, _shared_places(samples), batch_size)
    if isinstance(samples, Iterable):
        return _in_its_order(samples)
    raise ValueError(
        f"samples must be a DataLoader, a Dataset or an iterable of batches, not a {type(samples).__name__}"
    )


def can_be_read_once(samples: Any) -> bool:
    """Return whether a stream continues where it was left: whoever reads it takes its samples from everybody else."""
    return not has_places(samples) and isinstance(samples, Iterable) and iter(samples) is iter(samples)


def _is_set(samples: Any) -> bool:
    return isinstance(samples, Dataset) and not isinstance(samples, IterableDataset)


def has_places(loader: Any) -> bool:
    """Return whether the samples of a loader, or of a Dataset, can be asked for one by one."""
    if _is_set(loader):
        return True
    dataset = getattr(loader, "dataset", None)
    # Every Dataset has a `__getitem__`, also one that is a stream, whose sampler has no end.
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return False
    try:
        return len(loader.batch_sampler) >= 0
    except (AttributeError, TypeError):  # none, or one without a length, which may have no end either
        return False


def is_in_order(loader: Any) -> bool:
    """Return whether the batches of a loader come in the order of its dataset, also where processes share it."""
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return True
    batch_sampler = getattr(loader, "batch_sampler", None)
    sampler = getattr(getattr(batch_sampler, "batch_sampler", batch_sampler), "sampler", None)
    if isinstance(sampler, DistributedSampler):
        return not sampler.shuffle
    return sampler is None or isinstance(sampler, SequentialSampler)


def _in_its_order(batches: Iterable[Any]) -> Iterator[PlacedBatch]:
    with undisturbed(batches):
        yield from (PlacedBatch(batch, None) for batch in batches)


def _shared_places(loader: Any) -> list[int]:
    """Return which samples of its dataset a loader gives in all processes together, each once, in ascending order."""
    with undisturbed(loader):
        local = [place for batch in loader.batch_sampler for place in batch]
    # Each process may have seen a part, and a distributed sampler repeats samples so that all have equally many.
    return sorted({place for part in gather(local) for place in part})


def _by_places(loader: Any, places: list[int], batch_size: int) -> Iterator[PlacedBatch]:
    rank, size = rank_and_size()
    mine = range(rank, len(places), size)
    batch_size = getattr(loader.batch_sampler, "batch_size", None) or batch_size
    own_loader: DataLoader[Any] = DataLoader(
        Subset(loader.dataset, [places[number] for number in mine]),
        batch_size=batch_size,
        collate_fn=loader.collate_fn,
        num_workers=getattr(loader, "num_workers", 0),
        worker_init_fn=getattr(loader, "worker_init_fn", None),
        multiprocessing_context=getattr(loader, "multiprocessing_context", None),
    )
    for start, batch in zip(range(0, len(mine), batch_size), own_loader, strict=True):
        yield PlacedBatch(batch, np.array([places[number] for number in mine[start : start + batch_size]], np.int64))


@contextmanager
def undisturbed(loader: Any) -> Iterator[None]:
    """Put back what a pass over a loader changes in it: counters of epochs, generators, a running iteration."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    inner = getattr(batch_sampler, "batch_sampler", None)  # Accelerate's divides another one
    samplers = [getattr(each, "sampler", None) for each in (loader, batch_sampler, inner)]
    holders = [each for each in (loader, batch_sampler, inner, *samplers) if hasattr(each, "__dict__")]
    attributes = [(each, dict(vars(each))) for each in holders]
    generators = {
        id(value): value for _, values in attributes for value in values.values() if isinstance(value, torch.Generator)
    }
    states = [(generator, generator.get_state()) for generator in generators.values()]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
        for each, values in attributes:
            vars(each).clear()
            vars(each).update(values)
