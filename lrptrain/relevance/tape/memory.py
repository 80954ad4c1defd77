"""Memory that tensors share, written through one of them, and memory that something other than torch writes into."""

from collections.abc import Iterable

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from lrptrain.relevance.tape.nodes import same_numbers, version_of

# What allots memory without numbers of its own.
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
# What allots memory, of which all that is in it is known.
ALLOTTING = _EMPTY | {
    "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full",
}  # fmt: skip


class SharedMemory:
    """Memory that was written into: the tape knows what some of its tensors hold since, and nothing of the others."""

    def __init__(self, tensor: Tensor) -> None:
        self._kept = tensor  # so that no other memory gets its address
        self._current: dict[int, TensorWeakRef] = {}

    @property
    def is_written(self) -> bool:
        """Whether it was written into before."""
        return bool(self._current)

    def is_current(self, tensor: Tensor) -> bool:
        """Whether the tape knows what a tensor holds since the last write."""
        reference = self._current.get(id(tensor))
        return reference is not None and reference() is tensor

    def note(self, tensor: Tensor) -> None:
        """Note that the tape knows what a tensor holds now."""
        self._current[id(tensor)] = TensorWeakRef(tensor)

    def note_write(self, tensor: Tensor) -> None:
        """Note that a tensor was written through: of the others, nothing is known."""
        self._current = {}
        self.note(tensor)


def places(base: Tensor, view: Tensor) -> Int[Tensor, "..."]:
    """Where the entries of a view stand in reading order of the tensor that it is a view of; -1 for none of its own."""
    # Numbers in a memory laid out as that of the two tensors are, from the first entry of both on.
    start = min(int(base.storage_offset()), int(view.storage_offset()))
    numbers = torch.full([max(_end(base), _end(view)) - start], -1, dtype=torch.long, device=base.device)
    order = torch.arange(base.numel(), device=base.device).view(base.shape)
    _seen_as(numbers, base, start).copy_(order)
    return _seen_as(numbers, view, start).clone()


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


class Buffers:
    """What a model allots in its forward, as long as it is constant: a kernel may fill it, of which torch says nothing.

    `out = torch.empty_like(x); kernel[grid](x, out); return out * 2 + x`: on a tape `out` is a constant, and what came
    to it from x would be lost without a word.
    """

    def __init__(self) -> None:
        # By id: the buffer, its version when torch wrote into it last, and the numbers that it held then.
        self.contents: dict[int, tuple[TensorWeakRef, int, Tensor]] = {}

    def note_allotted(self, name: str, results: Iterable[Tensor]) -> None:
        """Note the results of a call that allots memory."""
        for result in results:
            if result.layout is not torch.strided or result.is_nested or result.is_meta or result.is_inference():
                continue
            if name in _EMPTY:
                # What is in it could be what a kernel wrote there in the last pass, and writes again in this one.
                # `data` has a version of its own, so that the model does not see the tensor as written.
                result.data.zero_()
            self._note(result)

    def note_written(self, tensor: Tensor, depends: bool) -> None:
        """Note that torch has written into a tensor; what then depends on the input is a constant no more."""
        buffer = _whole(tensor)
        if self._known(buffer) is not None:
            del self.contents[id(buffer)]
            if not depends:
                self._note(buffer)

    def written_unseen(self, tensor: Tensor) -> bool:
        """Whether something other than torch has written into the memory that a tensor shows."""
        buffer = _whole(tensor)
        known = self._known(buffer)
        return known is not None and known[1] == version_of(buffer) and not same_numbers(buffer.detach(), known[2])

    def _known(self, buffer: Tensor) -> tuple[TensorWeakRef, int, Tensor] | None:
        known = self.contents.get(id(buffer))
        return known if known is not None and known[0]() is buffer else None

    def _note(self, buffer: Tensor) -> None:
        self.contents[id(buffer)] = (TensorWeakRef(buffer), version_of(buffer), buffer.detach().clone())


def _whole(tensor: Tensor) -> Tensor:
    return tensor if tensor._base is None else tensor._base
