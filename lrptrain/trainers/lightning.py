"""Facts that the monitor reads off a Lightning trainer."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import DistributedSampler


def logged_step(trainer: Any) -> int:
    """The step at which Lightning logs validation values: batches that stepped, not `global_step`."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def log_scalars(logger: Any, scalars: Mapping[str, float], trainer: Any) -> None:
    """Make one point in a logger, as Lightning does after a validation."""
    logger.log_metrics({**scalars, "epoch": trainer.current_epoch}, logged_step(trainer))
    logger.save()


def undivided_length(trainer: Any, dataloader_idx: int) -> float:
    """Samples of a set that a distributed sampler divides: what lies beyond is its padding. Else infinite."""
    loaders = trainer.val_dataloaders
    loader = loaders[dataloader_idx] if isinstance(loaders, list | tuple) else loaders
    for owner in (loader, getattr(loader, "batch_sampler", None)):
        sampler = getattr(owner, "sampler", None)
        if isinstance(sampler, DistributedSampler):
            return len(sampler.dataset)  # type: ignore[arg-type]
    return float("inf")


def check_dataloader(trainer: Any, dataloader_idx: int) -> None:
    """Refuse a dataloader that is not there.

    Raises:
        ValueError: With how many there are.
    """
    count = len(trainer.num_val_batches)
    if not 0 <= dataloader_idx < count:
        raise ValueError(f"dataloader_idx={dataloader_idx}, but there are {count} validation dataloaders, from 0 on")
