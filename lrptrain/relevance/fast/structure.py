"""What is found in the operations of a tape, remembered for tapes of the very same operations.

Where samples and tokens are follows from the names of operations, their shapes and settings and how they are connected,
not from numbers. A tape that says all that of a later pass is the proof that it still holds: a model that was changed
in any way that matters makes another tape.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lrptrain.relevance.fast.switch import instead_of
from lrptrain.relevance.tape.functions import AVERAGES, DENSE, ELEMENTWISE, ENTRIES, MAXIMA, PRODUCTS
from lrptrain.relevance.tape.nodes import Node, Value

T = TypeVar("T")

MOST_KNOWN = 48
"""So many findings are known of a model at a time, some of each structure; the oldest is forgotten."""
_known: WeakKeyDictionary[nn.Module, dict[Hashable, Any]] = WeakKeyDictionary()

_MASKED = frozenset({"masked_fill", "where"})
# Operations of which the shapes and settings say where entries go.
_TOLD = ENTRIES | ELEMENTWISE | DENSE | PRODUCTS | AVERAGES | MAXIMA | _MASKED | {
    "add", "sub", "rsub", "mul", "div", "mean", "sum", "interpolate",
}  # fmt: skip
_SETTINGS = frozenset({int, float, bool, str, type(None), type(...), torch.dtype, torch.device, torch.Size})


class _NotToldError(Exception):
    """An argument, such as a tensor of indices, says by its numbers where entries go."""


def _told(x: Any, name: str, numbers: dict[Value, int]) -> Hashable:
    """Return what tells an argument of an operation from others, with values by their numbers."""
    if isinstance(x, Value):
        return "value", numbers.setdefault(x, len(numbers))
    if isinstance(x, Tensor) and (x.is_floating_point() or (name in _MASKED and x.dtype == torch.bool)):
        return x.shape, x.dtype
    if type(x) in _SETTINGS:
        return x  # type: ignore[no-any-return]
    if isinstance(x, (tuple, list)):
        return tuple([_told(item, name, numbers) for item in x])
    if isinstance(x, slice):
        return _told((x.start, x.stop, x.step), name, numbers)
    raise _NotToldError


def structure_of(nodes: list[Node], root: Value) -> Hashable | None:
    """Return what tells the operations of one pass from those of another; None where their numbers decide."""
    numbers = {root: 0}
    told: list[Any] = [root.shape]
    try:
        for node in nodes:
            if node.name not in _TOLD:
                return None
            told += (node.name, type(node.function), len(node.args), len(node.outputs))
            for x in node.args:
                if type(x) is Value:
                    told.append(("value", numbers.setdefault(x, len(numbers))))
                else:
                    told.append(x if type(x) in _SETTINGS else _told(x, node.name, numbers))
            if node.kwargs:
                told.append(_told([*node.kwargs.items()], node.name, numbers))
            for value in node.outputs:
                told += (numbers.setdefault(value, len(numbers)), value.shape)
    except _NotToldError:
        return None
    return tuple(told)


def found_anew(model: nn.Module, key: Hashable, find: Callable[[], T]) -> T:
    """Return what `find` finds."""
    return find()


@instead_of(found_anew)
def once_per_structure(model: nn.Module, key: Hashable, find: Callable[[], T]) -> T:
    """Return what `find` finds in a pass of a model, or found in one of the same structure."""
    known = _known.setdefault(model, {})
    if key not in known:
        found = find()
        while len(known) >= MOST_KNOWN:
            del known[next(iter(known))]
        known[key] = found
    result: T = known[key]
    return result
