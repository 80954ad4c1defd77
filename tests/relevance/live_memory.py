"""How many bytes of tensors are alive at the same time at most, counted, so that no other work on a machine matters."""

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveMemory(TorchDispatchMode):
    """Counts the memory that operations return, from when they return it until nobody holds it.

    Attributes:
        now: Bytes that are alive.
        peak: The most that were alive at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in tree_iter(result):
            if isinstance(x, Tensor):
                self._count(x)
        return result

    def _count(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        address = storage._cdata
        if address in self._alive:
            return
        size = storage.nbytes()

        def end(_: Any) -> None:
            self.now -= size
            del self._alive[address]

        self._alive[address] = weakref.ref(storage, end)
        self.now += size
        self.peak = max(self.peak, self.now)


def peak_of(work: Callable[[], Any]) -> int:
    """Bytes at the peak of some work, above what was there before."""
    with LiveMemory() as memory:
        work()
    return memory.peak
