"""What a model's attributes lead to, to be put back into the same objects after a forward that may change it.

Tensors, containers, attributes of the user's own objects and generators of random numbers are put back. Of arrays,
iterators and class attributes, a change is only named.
"""

import operator
import random
import sys
from argparse import Namespace
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import is_
from types import SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from lrptrain.relevance.fast.walk import named_modules_of, once_per_class
from lrptrain.relevance.tape.nodes import version_of

# How deep attributes are followed: a transformers cache has its tensors at the fourth level.
_DEPTH = 6
# Of a container of more entries, such as a vocabulary, only the length is compared.
_ENTRIES = 4096
# Of tensors so many entries are copied, 16 MB in float32, and of an array; further ones are watched.
_COPIED = 2**22
# Parameters are copied before the first call of a model, where they have at most so many entries: 0.5 GB in float32.
_COPIED_PARAMETERS = 2**27
_PLAIN = frozenset({bool, int, float, complex, str, bytes, range, type(None), torch.dtype, torch.device, torch.Size})
_HOLDING = (dict, list, set, deque)
# Of the standard library and of transformers, what merely holds other objects.
_INERT = (SimpleNamespace, Namespace, UserDict, UserList)
_OF_INERT = frozenset({"abc", "typing", "collections", "collections.abc", "types", "transformers.cache_utils"})


class Lost(NamedTuple):
    """Something that has changed and cannot be put back: its module and attribute, and what it is."""

    name: str
    what: str

    def __str__(self) -> str:
        """Return it as a sentence."""
        told = f"the model changes {self.name!r} in its forward, and this cannot be put back after a map"
        return f"{told}: it is {self.what}"


class _Kept:
    """A tensor as it is now; without a copy of its numbers, what is written into it can only be noticed."""

    __slots__ = ("memory", "numbers", "tensor", "version")

    def __init__(self, tensor: Tensor, copied: bool) -> None:
        self.tensor = tensor
        self.version = version_of(tensor)
        self.memory = tensor.detach()  # the same; the tensor may be given another
        self.numbers: Tensor | None = None
        if copied:
            with torch.inference_mode(False), torch.no_grad():
                self.numbers = self.memory.clone()

    def touched(self) -> bool:
        """Whether anything was written, were it the numbers that stood there, or other memory was given."""
        return version_of(self.memory) != self.version or self._was_moved() or self._was_written()

    def restore(self) -> bool:
        """Give the tensor its memory and its numbers back, and return whether that was possible."""
        with torch.no_grad():
            if self._was_moved():
                self.tensor.data = self.memory
            if not self._was_written():
                return True
            if self.numbers is not None:
                self.memory.copy_(self.numbers)
        return self.numbers is not None

    def _was_moved(self) -> bool:
        return self.tensor.data_ptr() != self.memory.data_ptr() or self.tensor.shape != self.memory.shape

    def _was_written(self) -> bool:
        if self.numbers is None:
            return version_of(self.memory) != self.version
        one, other = self.memory, self.numbers
        # Where nan stays nan nothing was written: the graph of an earlier pass may hold the tensor.
        return not (torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all()))


class Contents:
    """What the attributes of a model's modules hold."""

    def __init__(
        self, modules: Sequence[tuple[str, nn.Module, list[tuple[str, Any]]]], skipped: Iterable[Tensor] = ()
    ) -> None:
        self._containers: list[tuple[str, Any, Any]] = []
        self._tensors: list[tuple[str, _Kept]] = []
        self._left = _COPIED  # a teacher that is registered nowhere may have many weights
        self._generators: list[Callable[[], object]] = []
        # What is compared only: its name, what tells how it is, and what that was.
        self._watched: list[tuple[str, str, Callable[[], object], object]] = []
        self._seen = {id(tensor) for tensor in skipped} | {id(module) for _, module, _ in modules}
        for name, module, own in modules:
            # Parameters and modules are what they are: of them, only that none is new or gone is of interest.
            self._containers += [(name, held, held.copy()) for held in (module._parameters, module._modules)]
            for key, value in own:
                if type(value) not in _PLAIN:
                    self._note(value, f"{name}.{key}".lstrip("."), _DEPTH)
        kinds = dict.fromkeys(type(module) for _, module, _ in modules)
        for kind in dict.fromkeys(base for each in kinds for base in each.__mro__ if not _is_library(base)):
            self._watch(kind.__name__, "an attribute of the class", partial(_identities, kind))
            for value in [x for x in vars(kind).values() if isinstance(x, _HOLDING)]:
                self._note(value, kind.__name__, _DEPTH)

    def restore(self) -> list[Lost]:
        """Put back what has changed, and return what could not be."""
        lost = []
        for name, container, before in self._containers:
            if not container and not before:
                continue
            try:
                _refill(container, before)
            except Exception as error:  # a container of the user's may do anything
                lost.append(Lost(name, f"a {type(container).__name__} that refuses it: {error}"))
        for put_back in self._generators:
            put_back()
        why = "a tensor too large for a copy; make it a buffer (register_buffer)"
        lost += [Lost(name, why) for name, kept in self._tensors if kept.touched() and not kept.restore()]
        return lost + [Lost(name, what) for name, what, now, before in self._watched if now() != before]

    def _note(self, value: Any, name: str, depth: int) -> None:
        if type(value) in _PLAIN or id(value) in self._seen:
            return
        self._seen.add(id(value))
        generator = _putting_back(value)
        if generator is not None:
            self._generators.append(generator)
        elif isinstance(value, Tensor):
            self._note_tensor(value, name)
        elif isinstance(value, (tuple, *_HOLDING)):
            with suppress(Exception):  # what cannot be read is left alone
                self._note_container(value, name, depth)
        elif isinstance(value, nn.Module) or _is_followed(type(value)):  # a module that is registered nowhere
            self._note_container(getattr(value, "__dict__", {}), name, depth)
        else:
            look = _look_at(value)
            if look is not None:
                self._watch(name, f"of type {type(value).__name__}", look)

    def _note_tensor(self, tensor: Tensor, name: str) -> None:
        plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
        if plain and not tensor.is_inference() and not tensor.is_meta:
            copied = tensor.numel() <= self._left
            self._left -= tensor.numel() if copied else 0
            self._tensors.append((name, _Kept(tensor, copied)))

    def _note_container(self, value: Any, name: str, depth: int) -> None:
        if len(value) > _ENTRIES:
            self._watch(name, f"a {type(value).__name__} of more than {_ENTRIES:,} entries", partial(len, value))
            return
        if not isinstance(value, tuple):
            self._containers.append((name, value, dict(value) if isinstance(value, dict) else list(value)))
        if depth:
            for item in list(value.values() if isinstance(value, dict) else value):
                self._note(item, name, depth - 1)

    def _watch(self, name: str, what: str, look: Callable[[], object]) -> None:
        self._watched.append((name, what, look, look()))


def same_entries(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> bool:
    """Whether the same keys, in the same order, have the very same values."""
    if len(now) != len(before):
        return False
    return all(map(is_, now.values(), before.values())) and all(map(is_, now, before))


def _refill(container: Any, before: Any) -> None:
    """Give a container its entries back, where it has others."""
    if isinstance(container, dict):
        same = same_entries(container, before)
    else:
        same = len(container) == len(before) and all(map(is_, container, before))
    if not same:
        container.clear()
        (container.update if isinstance(container, (dict, set)) else container.extend)(before)


def _identities(kind: type) -> list[int]:
    return [*map(id, vars(kind).values())]


def _look_at(value: Any) -> Callable[[], object] | None:
    """What tells, for little, whether something has changed; None where nothing does."""
    if isinstance(value, np.ndarray) and value.dtype != object and value.size <= _COPIED:
        return value.tobytes
    return partial(_place_of, value) if isinstance(value, Iterator) else None


def _place_of(iterator: Iterator[Any]) -> object:
    """How far an iterator is, as far as one can see: how much is left, what `itertools.count` says, what runs."""
    frame = getattr(iterator, "gi_frame", None)
    running = [] if frame is None else [frame.f_lasti, *map(id, frame.f_locals.values())]
    return operator.length_hint(iterator, -1), repr(iterator), running


def _putting_back(value: Any) -> Callable[[], object] | None:
    """What puts a generator of random numbers back; None for anything else."""
    if isinstance(value, torch.Generator):
        return partial(value.set_state, value.get_state())
    if isinstance(value, np.random.RandomState):
        return partial(value.set_state, value.get_state(legacy=False))
    if isinstance(value, np.random.Generator):
        return partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    return partial(value.setstate, value.getstate()) if isinstance(value, random.Random) else None


@once_per_class
def _is_followed(kind: type) -> bool:
    """Whether objects of a class are followed: the user's own, and those that merely hold others.

    What a library made may talk to a file, a server or a trainer, and belongs to nobody's forward.
    """
    inert = issubclass(kind, _INERT) or kind.__module__ == "transformers.cache_utils"
    bases = [base for base in kind.__mro__ if base is not object]
    return inert or all(base.__module__ in _OF_INERT or not _is_library(base) for base in bases)


@once_per_class
def _is_library(kind: type) -> bool:
    root = (kind.__module__ or "").partition(".")[0]
    if root in sys.stdlib_module_names and root != "__main__":
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return root in ("torch", "lrptrain") or any(
        f"/{each}/" in file.replace("\\", "/") for each in ("site-packages", "dist-packages")
    )


# Which parameters each model's forward has been seen to write, by whether it was training; none before the first call.
_WRITTEN_BY: WeakKeyDictionary[nn.Module, dict[bool, set[str]]] = WeakKeyDictionary()


class Parameters:
    """The parameters of a model, to be put back where its forward writes them, as the key encoder of MoCo is.

    A parameter that is given other memory (`p.data = ...`) gets its own back, which takes no copy. Those that are
    written in place are copied: all before the first call of a model in each mode, if there are not too many, then
    those that were seen to be written. One that is first written later is named; by `p.data.mul_(...)`, unnoticed.
    """

    def __init__(self, model: nn.Module) -> None:
        plain: dict[str, nn.Parameter] = {}
        seen = set[int]()
        for prefix, module in named_modules_of(model):
            for key, p in module._parameters.items():
                if type(p) is nn.Parameter and id(p) not in seen and not p.is_meta:
                    seen.add(id(p))
                    plain[f"{prefix}.{key}" if prefix else key] = p
        self._model, self._mode = model, model.training
        copied = _WRITTEN_BY.get(model, {}).get(model.training)
        if copied is None:
            copied = set(plain) if sum(p.numel() for p in plain.values()) <= _COPIED_PARAMETERS else set()
        self._kept = {name: _Kept(plain[name], copied=True) for name in copied if name in plain}
        # Of most, what tells for little whether they were written or moved, and the memory to give back.
        rest = [(name, p) for name, p in plain.items() if name not in copied]
        self._rest = [(name, p, p.detach(), version_of(p), p.data_ptr()) for name, p in rest]

    def restore(self) -> list[Lost]:
        """Put back what has changed, and return what could not be."""
        touched = {name: kept for name, kept in self._kept.items() if kept.touched()}
        for name, p, memory, version, place in self._rest:
            if version_of(p) != version or p.data_ptr() != place or p.shape != memory.shape:
                touched[name] = _Kept(p, copied=False)
                touched[name].memory, touched[name].version = memory, version
        _WRITTEN_BY.setdefault(self._model, {}).setdefault(self._mode, set()).update(touched)
        why = "a parameter that no copy was made of"
        return [Lost(name, why) for name, kept in touched.items() if not kept.restore()]
