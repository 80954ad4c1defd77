"""The few collectives the monitor needs: every process takes part in each, whatever its rank or fate."""

from typing import Any

import torch.distributed as dist


def gather(mine: Any) -> list[Any]:
    """What every process has, by rank; just `[mine]` in a single process."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [mine]
    everything: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everything, mine)
    return everything


def rank_and_size() -> tuple[int, int]:
    """This process' rank and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
