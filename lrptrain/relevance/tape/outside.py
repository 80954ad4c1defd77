"""Numbers that leave torch, and tensors that come from there: a tape sees neither what is done to them nor whether."""

import gc
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from lrptrain.relevance.tape.functions import FUNCTIONS
from lrptrain.relevance.tape.nodes import same_numbers, version_of

# What hands the numbers of a tensor out: numpy, DLPack, lists. A single number (`item`) is for control flow.
EXPORTS = frozenset({"numpy", "array", "dlpack", "tolist"})
# What makes a tensor of numbers from outside, if it is given an array or a list.
_IMPORTS = frozenset({"tensor", "as_tensor", "asarray", "new_tensor", "new", "frombuffer"})
# What refuses a tensor with a graph, or warns of it. The graph is the tape's: the model's own call may have none.
_WITHOUT_GRAPH = frozenset({"numpy", "__array__", "__dlpack__", "__float__", "__int__", "__complex__", "__index__"})


@lru_cache(FUNCTIONS)
def hands_out(function: Any) -> bool:
    """Whether a call hands out numbers to where no graph is."""
    return getattr(function, "__name__", "") in _WITHOUT_GRAPH


def without_graph(function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call that hands out numbers, as it takes them."""
    if not hands_out(function):
        return args
    return tuple(x.detach() if isinstance(x, Tensor) else x for x in args)


class Outside:
    """Remembers, from the first export on, which tensors came from torch; before, there is nothing to remember."""

    def __init__(self) -> None:
        """Nothing has left torch so far."""
        self.exported = ""  # by what, and in which module
        self._of_torch: dict[int, TensorWeakRef] = {}
        self._shared: list[tuple[Tensor, int, Tensor]] = []

    def note(self, name: str, module: str, exported: Iterable[Tensor]) -> None:
        """Note a call that may hand out numbers which depend on the input."""
        if name not in EXPORTS:
            return
        # An array shares the memory, and may be written into.
        self._shared += [(x, version_of(x), x.detach().clone()) for x in exported]
        if not self.exported:
            self.exported = f"{name} in module '{module or '(model)'}'"
            # All tensors that there are: none of them is made of what leaves now.
            kinds = set(_kinds(Tensor))
            self.know(x for x in gc.get_objects() if type(x) in kinds)

    def know(self, tensors: Iterable[Tensor]) -> None:
        """Remember tensors that are no numbers from outside."""
        for tensor in tensors:
            self._of_torch[id(tensor)] = TensorWeakRef(tensor)

    def came_from_there(self, tensor: Tensor) -> bool:
        """Whether a tensor may be made of what has left torch."""
        if not self.exported or not tensor.is_floating_point() or isinstance(tensor, torch.nn.Parameter):
            return False
        reference = self._of_torch.get(id(tensor))
        return reference is None or reference() is not tensor

    def know_results(self, name: str, args: tuple[Any, ...], tensors: Iterable[Tensor], results: list[Tensor]) -> None:
        """Remember what a call has made, unless it was made of numbers from outside."""
        data = args[-1] if name in ("new_tensor", "new") and args else args[0] if args else None
        imported = name in _IMPORTS and not isinstance(data, (Tensor, int, float))
        if not imported and not any(self.came_from_there(tensor) for tensor in tensors):
            self.know(results)

    def written(self) -> bool:
        """Whether somebody has written into memory that was shared, which no version tells."""
        return any(version_of(x) == version and not same_numbers(x, before) for x, version, before in self._shared)


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    derived: type
    for derived in kind.__subclasses__():
        yield from _kinds(derived)
