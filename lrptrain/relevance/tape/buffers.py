"""Memory that a model allots in its forward pass, and that a kernel may fill: no call of torch tells of it.

`out = torch.empty_like(x); kernel[grid](x, out); return out * 2 + x`, in a custom autograd function or outside of one:
on a tape `out` is a constant, and what came to it from x would be lost without a word.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from lrptrain.relevance.tape.nodes import same_numbers, version_of

# What allots memory without numbers of its own.
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
# What allots memory, of which all that is in it is known.
ALLOTTING = _EMPTY | {
    "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Contents:
    """What a buffer held when torch wrote into it last, which its version tells."""

    buffer: TensorWeakRef
    version: int
    numbers: Tensor


class Buffers:
    """Remembers what the buffers of a pass hold, as long as they are constants."""

    def __init__(self) -> None:
        """Nothing is allotted so far."""
        self.contents: dict[int, _Contents] = {}  # by the id of the buffer

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
        if self._known(buffer) is None:
            return
        if depends:
            del self.contents[id(buffer)]
        else:
            self._note(buffer)

    def written_unseen(self, tensor: Tensor) -> bool:
        """Whether something other than torch has written into the memory that a tensor shows."""
        buffer = _whole(tensor)
        contents = self._known(buffer)
        if contents is None or contents.version != version_of(buffer):
            return False
        return not same_numbers(buffer.detach(), contents.numbers)

    def _known(self, buffer: Tensor) -> _Contents | None:
        contents = self.contents.get(id(buffer))
        return contents if contents is not None and contents.buffer() is buffer else None

    def _note(self, buffer: Tensor) -> None:
        self.contents[id(buffer)] = _Contents(TensorWeakRef(buffer), version_of(buffer), buffer.detach().clone())


def _whole(tensor: Tensor) -> Tensor:
    return tensor if tensor._base is None else tensor._base
