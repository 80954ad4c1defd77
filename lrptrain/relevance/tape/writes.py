"""Operations that write entries into others, or add them to others, where indices say."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lrptrain.relevance.tape.functions import ADDING, PUTS
from lrptrain.relevance.tape.nodes import Node


@dataclass(frozen=True, eq=False)
class IndexedWrite:
    """What such an operation does, so that it can be done to other numbers.

    Attributes:
        name: The operation.
        target: What is written to, an activation or a constant.
        where: An index as in `x[index]`; places in reading order (put); or an axis and indices along it.
        source: What is written.
        adds: Whether it is added to what is there.
    """

    name: str
    target: Any
    where: Any
    source: Any
    adds: bool

    def write(self, numbers: Tensor, source: Tensor) -> None:
        """Write into a tensor of the shape of the target."""
        if self.name in ("setitem", "index_put"):
            numbers[self.where] = source
        elif self.name == "put":
            numbers.put_(self.where, source.reshape(self.where.shape))
        elif self.name.startswith("scatter"):
            axis, index = self.where
            # It reads no more of its source than there are indices.
            numbers.scatter_(axis, index, source[tuple(slice(size) for size in index.shape)])
        else:
            axis, index = self.where
            numbers.index_copy_(axis, index, source)

    def read(self, numbers: Tensor) -> Tensor:
        """The entries of such a tensor that are written to, in the shape of the source or one that it expands to."""
        if self.name in ("setitem", "index_put"):
            return numbers[self.where]
        if self.name == "put":
            return numbers.take(self.where)
        return numbers.gather(*self.where) if self.name.startswith("scatter") else numbers.index_select(*self.where)

    def repeats(self, shape: torch.Size, device: torch.device) -> bool:
        """Whether an entry of a target of that shape is written to more than once."""
        is_written = torch.zeros(shape, dtype=torch.bool, device=device)
        entries = self.read(is_written)
        self.write(is_written, torch.ones_like(entries))
        return int(is_written.sum()) != entries.numel()


def indexed_write(node: Node) -> IndexedWrite:
    """What a recorded operation writes, and where."""
    name = node.name
    target = node.argument(0, "input")
    if name == "setitem":
        return IndexedWrite(name, target, where=node.args[1], source=node.args[2], adds=False)
    if name in PUTS:
        where = tuple(node.argument(1, "indices")) if name == "index_put" else node.argument(1, "index")
        source = node.argument(2, "values" if name == "index_put" else "source")
        return IndexedWrite(name, target, where, source, adds=bool(node.argument(3, "accumulate", False)))
    source = node.argument(3, "source", node.kwargs.get("src", node.kwargs.get("value")))
    where = (node.argument(1, "dim"), node.argument(2, "index"))
    return IndexedWrite(name, target, where, source, adds=name in ADDING)
