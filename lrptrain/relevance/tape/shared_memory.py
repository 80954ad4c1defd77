"""Memory that several tensors share, written through one of them: what the others hold then.

`keys[..., :4].copy_(x)` changes `keys`. On a tape nothing changes: the write ("write_through") makes a tensor of
the shape of `keys`, of what it held before and of x, and another view of `keys` reads entries of that ("take").
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from lrptrain.relevance.tape.nodes import Value

# An activation or a constant.
Contents = Value | Tensor


@dataclass(frozen=True, eq=False)
class Write:
    """A write through a view.

    Attributes:
        written: What the view holds since.
        places: The place of each of its entries, in reading order of the whole.
    """

    written: Contents
    places: Int[Tensor, "..."]


@dataclass(eq=False)
class SharedMemory:
    """A tensor with all of its views, since one of them was written through.

    Attributes:
        base: The tensor that the others are views of.
        contents: What it held before the writes; None where nobody knows.
        writes: The writes that only the tensor that was written through has seen so far.
    """

    base: Tensor
    contents: Contents | None
    writes: list[Write] = field(default_factory=list)
    # The tensors of which the tape knows what they hold since the last write.
    _current: dict[int, TensorWeakRef] = field(default_factory=dict)

    def is_current(self, tensor: Tensor) -> bool:
        """Whether the tape knows what the tensor holds since the last write."""
        reference = self._current.get(id(tensor))
        return reference is not None and reference() is tensor

    def note_current(self, tensor: Tensor) -> None:
        """Note that the tape knows what the tensor holds now."""
        self._current[id(tensor)] = TensorWeakRef(tensor)

    def can_read(self, tensor: Tensor) -> bool:
        """Whether what a tensor holds follows from the contents: not so for a detached alias, or in another type."""
        is_view = tensor is self.base or tensor._base is self.base
        return self.contents is not None and is_view and tensor.dtype == self.base.dtype and not tensor.is_conj()

    def note_write(self, tensor: Tensor, written: Contents) -> None:
        """Note that a tensor was written through, and what it holds since."""
        self._current = {}
        self.note_current(tensor)
        if tensor is self.base:
            self.contents = written
            self.writes = []
        elif self.can_read(tensor):
            self.writes.append(Write(written, places(self.base, tensor)))
        else:
            self.contents = None
            self.writes = []


def opened(tensor: Tensor, contents: Contents | None, aliases: Iterable[Value]) -> SharedMemory:
    """The memory of a tensor that is about to be written through for the first time.

    Args:
        tensor: The tensor.
        contents: What the tensor that it is a view of holds, if that is known.
        aliases: The values that share the memory.
    """
    base = tensor if tensor._base is None else tensor._base
    memory = SharedMemory(base, contents)
    if contents is None and base is not tensor:
        # The result of `reshape` may be a view of a copy that nobody holds; it shows all of it.
        for value in aliases:
            held = value.held
            if held is not None and held._base is base and held.shape.numel() == base.numel():
                memory.contents = torch.zeros((), dtype=base.dtype, device=base.device).expand(base.shape)
                memory.writes = [Write(value, places(base, held))]
                break
    return memory


def places(base: Tensor, view: Tensor) -> Int[Tensor, "..."]:
    """Where the entries of a view stand in reading order of the tensor that it is a view of; -1 for none of its own."""
    # Numbers in a memory laid out as that of the two tensors are, from the first entry of both on.
    start = min(int(base.storage_offset()), int(view.storage_offset()))
    numbers = torch.full([max(_end(base), _end(view)) - start], -1, dtype=torch.long, device=base.device)
    order = torch.arange(base.numel(), device=base.device).view(base.shape)
    _seen_as(numbers, base, start).copy_(order)
    return _seen_as(numbers, view, start).clone()


def overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one memory may have entries in common; they do where they see it in two types."""
    return one.dtype != other.dtype or bool((places(one, other) >= 0).any())


def _end(tensor: Tensor) -> int:
    """The place in memory behind the last entry."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return int(tensor.storage_offset()) + 1 + sum((size - 1) * step for size, step in steps)


def _seen_as(numbers: Tensor, tensor: Tensor, start: int) -> Tensor:
    return numbers.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()) - start)


def put(before: Tensor, at: Int[Tensor, "..."], written: Tensor) -> Tensor:
    """A tensor as it was, but for some entries, whose places count in reading order."""
    return before.to(written.dtype).put(at, written)


def copied(source: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """What a tensor of some shape and type holds after `copy_`."""
    return source.to(dtype).expand(shape).clone()
