"""The few collectives the monitor needs: every process takes part in each, whatever its rank or fate."""

from typing import Any

import torch.distributed as dist


def rank_and_size() -> tuple[int, int]:
    """This process' rank and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gather(mine: Any) -> list[Any]:
    """What every process has, by rank; just `[mine]` in a single process."""
    size = rank_and_size()[1]
    if size == 1:
        return [mine]
    everything: list[Any] = [None] * size
    dist.all_gather_object(everything, mine)
    return everything


def gather_to_first(mine: Any) -> list[Any]:
    """The same in the first process only; `[]` in the others."""
    rank, size = rank_and_size()
    if size == 1:
        return [mine]
    everything: list[Any] = [None] * size if rank == 0 else []
    dist.gather_object(mine, everything if rank == 0 else None)
    return everything
