"""What the attributes of modules hold: caches in dicts, lists and sets, and tensors that are no buffers."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.relevance.tape.nodes import version_of

# How deep containers are followed into containers, and how many entries one may have for that: a vocabulary has more.
_DEPTH = 3
_ENTRIES = 4096
_PLAIN = frozenset({bool, int, float, str, tuple, type(None)})
_HOLDING = (Tensor, dict, list, set, deque)
# What torch keeps of every module: hooks, which a forward does not change, and buffers, which are put back elsewhere.
_BOOKKEEPING = vars(nn.Module()).keys() - {"_parameters", "_modules"}
# Tensors of more entries are watched, but not copied.
_COPIED = 2**22


@dataclass(frozen=True)
class _Written:
    """A tensor, how often it was written before, and its numbers; None if it is too large for a copy.

    Its name is that of its module, and of the attribute that holds it.
    """

    tensor: Tensor
    version: int
    numbers: Tensor | None
    name: tuple[str, str]


class Contents:
    """The contents of a model's attributes, to be put back into the same objects."""

    def __init__(self, attributes: Iterable[tuple[str, Mapping[str, Any]]], skipped: Iterable[Tensor] = ()):
        """Remember what the attributes hold now.

        Args:
            attributes: Every module's name and its attributes.
            skipped: Tensors that somebody else puts back: the buffers.
        """
        self._containers: list[tuple[Any, Any]] = []
        self._tensors: list[_Written] = []
        self._seen = {id(tensor) for tensor in skipped}
        for module, values in attributes:
            for name, value in values.items():
                if type(value) not in _PLAIN and name not in _BOOKKEEPING:
                    # Parameters and modules are what they are: of them, only that none is new or gone is of interest.
                    self._note(value, (module, name), 0 if name in ("_parameters", "_modules") else _DEPTH)

    def restore(self) -> list[str]:
        """Put back what has changed, and return the names of the tensors that were changed and have no copy."""
        for container, before in self._containers:
            if not _same(container, before):
                _refill(container, before)
        changed = [written for written in self._tensors if version_of(written.tensor) != written.version]
        with torch.no_grad():
            for written in changed:
                if written.numbers is not None:
                    written.tensor.detach().copy_(written.numbers)
        return [".".join(written.name).lstrip(".") for written in changed if written.numbers is None]

    def _note(self, value: Any, name: tuple[str, str], depth: int) -> None:
        if isinstance(value, Tensor):
            self._note_tensor(value, name)
        elif isinstance(value, _HOLDING) and id(value) not in self._seen:
            self._seen.add(id(value))
            self._containers.append((value, dict(value) if isinstance(value, dict) else list(value)))
            if depth and 0 < len(value) <= _ENTRIES:
                for item in value.values() if isinstance(value, dict) else value:
                    self._note(item, name, depth - 1)

    def _note_tensor(self, tensor: Tensor, name: tuple[str, str]) -> None:
        plain = type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.is_inference()
        if id(tensor) in self._seen or not plain or isinstance(tensor, nn.Parameter):
            return
        self._seen.add(id(tensor))
        small = tensor.numel() <= _COPIED
        with torch.inference_mode(False), torch.no_grad():
            numbers = tensor.detach().clone() if small else None
        self._tensors.append(_Written(tensor, version_of(tensor), numbers, name))


def _same(container: Any, before: Any) -> bool:
    if len(container) != len(before):
        return False
    if isinstance(container, dict):
        return all(map(is_, container, before)) and all(map(is_, container.values(), before.values()))
    return all(map(is_, container, before))


def _refill(container: Any, before: Any) -> None:
    container.clear()
    if isinstance(container, (dict, set)):
        container.update(before)
    else:
        container.extend(before)
