"""The few collectives that callbacks need; every process must take part in each, also one that failed."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lrptrain.relevance.sharding.shards import is_sharded
from lrptrain.relevance.sharding.whole_weights import meet, whole_weights
from lrptrain.trainers.failures import describe_error

Value = TypeVar("Value")


def rank_and_size() -> tuple[int, int]:
    """Return this process' rank and the number of processes; (0, 1) in a single process."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


@dataclass(frozen=True)
class DataShare:
    """Which part of a data set a process is given; under tensor parallel, several processes are given the same one.

    Attributes:
        part: The number of the part.
        parts: How many there are.
        reader: The number of this process among those that are given the part.
        readers: How many are given it.
    """

    part: int
    parts: int
    reader: int = 0
    readers: int = 1


def gather(value: Value) -> list[Value]:
    """Return the values of all processes, by rank; just `[value]` in a single process."""
    size = rank_and_size()[1]
    if size == 1:
        return [value]
    meet()  # where a model is sharded, another process may need weights before it gets here
    # The collective fills a list that has room for every process.
    values: list[Value] = [value] * size
    dist.all_gather_object(values, value)
    return values


def gather_to_first(value: Value) -> list[Value]:
    """Return the values of all processes in the first one, `[]` in the others."""
    rank, size = rank_and_size()
    if size == 1:
        return [value]
    meet()
    values: list[Value] = [value] * size if rank == 0 else []
    dist.gather_object(value, values if rank == 0 else None)
    return values


def in_every_process(work: Callable[[], Value]) -> Value:
    """Run a function in every process, and let all processes fail if one does.

    A process that fails raises its own error. The others would wait for it forever at the next collective: they raise
    an error that names it. The work must hold no collective, which the other processes might not reach.
    """
    error: Exception | None = None
    try:
        result = work()
    except Exception as problem:
        error = problem
    messages = gather("" if error is None else describe_error(error))
    if error is not None:
        raise error
    for rank, message in enumerate(messages):
        if message:
            raise RuntimeError(f"{message} (process {rank})")
    return result


def in_every_process_of(model: nn.Module, work: Callable[[], Value]) -> Value:
    """Run a function that may run a model, in every process that shares it out, and let all fail if one does.

    Of a model that is not sharded, just run it.
    """
    if rank_and_size()[1] == 1 or not is_sharded(model):
        return work()
    # A process that fails before it needs the weights still has to hand out its shards of them.
    with whole_weights(model):
        return in_every_process(work)


@dataclass(frozen=True)
class Processes:
    """The processes of a training.

    Attributes:
        over_all: Takes the sum or the mean of a tensor over all of them, with the same shape in each.
    """

    rank: int
    size: int
    over_all: Callable[[Tensor, Literal["sum", "mean"]], Tensor]

    def reduced(self, values: Tensor, operation: Literal["sum", "mean"]) -> Tensor:
        """Reduce over all processes; in a single one the values stay as they are, to the bit."""
        return self.over_all(values, operation) if self.size > 1 else values


def torch_processes() -> Processes:
    """Return the processes of torch's default group."""
    rank, size = rank_and_size()
    return Processes(rank, size, _over_group)


def _over_group(values: Tensor, operation: Literal["sum", "mean"]) -> Tensor:
    reduced = values.detach().clone()
    dist.all_reduce(reduced)
    return reduced / dist.get_world_size() if operation == "mean" else reduced


class SharedText:
    """A text that processes share which are started with this object, as by `strategy="ddp_spawn"`.

    Such processes get copies of everything, and what they change in them is lost when they end.
    """

    def __init__(self, size: int = 4096) -> None:
        # torch.multiprocessing hands a tensor in shared memory on as what it is, not as a copy of its values.
        self._bytes = torch.zeros(size, dtype=torch.uint8)
        with suppress(RuntimeError, OSError):  # none is left: then started processes have what they write to themselves
            self._bytes.share_memory_()

    @property
    def text(self) -> str:
        """The text; empty at first."""
        return bytes(self._bytes.tolist()).rstrip(b"\0").decode()

    @text.setter
    def text(self, text: str) -> None:
        encoded = text.encode()
        if len(encoded) > len(self._bytes):
            raise ValueError(f"{len(encoded)} bytes are more than the {len(self._bytes)} there is room for")
        self._bytes.zero_()
        self._bytes[: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8)
