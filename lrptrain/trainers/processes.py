"""The few collectives that callbacks need; every process must take part in each, also one that failed."""

from typing import TypeVar

import torch.distributed as dist

Value = TypeVar("Value")


def rank_and_size() -> tuple[int, int]:
    """Return this process' rank and the number of processes; (0, 1) in a single process."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gather(value: Value) -> list[Value]:
    """Return the values of all processes, by rank; just `[value]` in a single process."""
    size = rank_and_size()[1]
    if size == 1:
        return [value]
    # The collective fills a list that has room for every process.
    values: list[Value] = [value] * size
    dist.all_gather_object(values, value)
    return values


def gather_to_first(value: Value) -> list[Value]:
    """Return the values of all processes in the first one, `[]` in the others."""
    rank, size = rank_and_size()
    if size == 1:
        return [value]
    values: list[Value] = [value] * size if rank == 0 else []
    dist.gather_object(value, values if rank == 0 else None)
    return values
