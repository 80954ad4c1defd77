"""What a model keeps outside of its buffers: containers, objects, arrays, generators, class attributes, parameters.

A model may write anything in its forward. All that its attributes lead to is remembered before a call and put back into
the same objects after it. What cannot be put back, such as an iterator that has moved on, is named.

Followed are the user's own objects, and those that merely hold others. What a library made is left alone: it may talk
to a file, a server or a trainer, and belongs to nobody's forward.
"""

import itertools
import operator
import random
import sys
from argparse import Namespace
from array import array
from collections import UserDict, UserList, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO, StringIO
from operator import is_
from types import GeneratorType, SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from lrptrain.relevance.fast.walk import named_modules_of, once_per_class, own_attributes
from lrptrain.relevance.tape.nodes import version_of

# How deep attributes are followed: a transformers cache has its tensors at the fourth level.
_DEPTH = 6
# A container of more entries, such as a vocabulary, is only counted.
_ENTRIES = 4096
# Tensors and arrays of more entries are watched, but not copied: 16 MB in float32.
_COPIED = 2**22
# Parameters are copied before the first call of a model, where they have at most so many entries: 0.5 GB in float32.
_COPIED_PARAMETERS = 2**27
_PLAIN = frozenset({bool, int, float, complex, str, bytes, range, type(None), torch.dtype, torch.device, torch.Size})
_HOLDING = (dict, list, set, deque)
_INERT = (SimpleNamespace, Namespace, UserDict, UserList)
_LIBRARIES = ("site-packages", "dist-packages")

Name = tuple[str, str]
"""The name of a module, and of the attribute of it that leads to a thing."""


class Lost(NamedTuple):
    """Something that has changed, or may have, and cannot be put back.

    Attributes:
        name: Its module and attribute, joined by a dot.
        what: What it is, after "it is".
        seen: Whether the change was seen; else nobody can see whether there was one.
    """

    name: str
    what: str
    seen: bool = True

    def __str__(self) -> str:
        """Return it as a sentence."""
        told = "changes {!r} in its forward, and this cannot be put back after a map"
        if not self.seen:
            told = "keeps {!r}, and whether its forward changes that cannot be seen"
        return f"the model {told.format(self.name)}: it is {self.what}"


class _Unseen(str):
    """What something is of which nobody sees whether it has changed."""

    __slots__ = ()


class _Kept:
    """A tensor as it is now.

    Args:
        tensor: A plain one.
        copied: Whether its numbers are copied; else what is written into its memory can only be noticed, and what is
            written past `version_of`, through `.data` or NumPy, not even that.
    """

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
        """Return whether anything was written, were it the numbers that stood there, or other memory was given."""
        written = version_of(self.memory) != self.version
        return written or (self._was_moved() if self.numbers is None else self.changed())

    def changed(self) -> bool:
        """Return whether it was given other memory or numbers."""
        return self._was_moved() or self._was_written()

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
    """What the attributes of a model's modules hold, to be put back into the same objects.

    Args:
        modules: The modules by name.
        skipped: Tensors that somebody else puts back: the buffers.
    """

    def __init__(self, modules: Sequence[tuple[str, nn.Module]], skipped: Iterable[Tensor] = ()) -> None:
        self._containers: list[tuple[Any, Any]] = []
        self._tensors: list[tuple[Name, _Kept]] = []
        # Each puts something back, and returns a text if it cannot: why.
        self._others: list[tuple[Name, Callable[[], object]]] = []
        self._seen = {id(tensor) for tensor in skipped} | {id(module) for _, module in modules}
        self._weights_left = _COPIED  # of modules that are registered nowhere, such as a teacher
        kinds: dict[type, str] = {}
        for name, module in modules:
            # Parameters and modules are what they are: of them, only that none is new or gone is of interest.
            self._containers += [(own, own.copy()) for own in (module._parameters, module._modules)]
            for key, value in own_attributes(module):
                if type(value) not in _PLAIN:
                    self._note(value, (name, key), _DEPTH)
            kinds.setdefault(type(module), name)
        for kind, name in kinds.items():
            for own_kind in _own_classes(kind):
                if id(own_kind) not in self._seen:
                    self._note_class(own_kind, name)

    def restore(self) -> list[Lost]:
        """Put back what has changed, and return what could not be."""
        for container, before in self._containers:
            same = same_entries if isinstance(container, dict) else _same
            if (container or before) and not same(container, before):
                _refill(container, before)
        lost = [
            (name, "a tensor too large for a copy; make it a buffer (register_buffer)")
            for name, kept in self._tensors
            if kept.changed() and not kept.restore()
        ]
        for name, put_back in self._others:
            try:
                why = put_back()
            except Exception as error:  # an object of the user's may do anything
                why = f"a {type(error).__name__} when it is written: {error}"
            if isinstance(why, str) and why:
                lost.append((name, why))
        return [Lost(".".join(name).lstrip("."), why, not isinstance(why, _Unseen)) for name, why in lost]

    def _note(self, value: Any, name: Name, depth: int) -> None:
        if type(value) in _PLAIN:
            return
        try:
            self._note_any(value, name, depth)
        except Exception as error:  # an object of the user's may do anything
            why = _Unseen(f"a {type(error).__name__} when it is read: {error}")
            self._others.append((name, lambda: why))

    def _note_any(self, value: Any, name: Name, depth: int) -> None:
        kind = type(value)
        if id(value) in self._seen or _is_left_alone(kind):
            return
        if isinstance(value, Tensor):
            self._note_tensor(value, name)
            return
        if isinstance(value, tuple):
            for item in value if depth and len(value) <= _ENTRIES else ():
                self._note(item, name, depth - 1)
            return
        if isinstance(value, _HOLDING):
            self._seen.add(id(value))
            self._note_container(value, name, depth)
            return
        if type(value) is np.ndarray and value.dtype == object and depth and value.size <= _ENTRIES:
            for item in value.flat:
                self._note(item, name, depth - 1)
        put_back = _putting_back(value)
        if put_back is not None:
            self._seen.add(id(value))
            self._others.append((name, put_back))
        elif depth and (isinstance(value, nn.Module) or _is_followed(kind)):
            self._seen.add(id(value))
            self._note_object(value, name, depth)

    def _note_tensor(self, tensor: Tensor, name: Name) -> None:
        plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
        if not plain or tensor.is_inference() or tensor.is_meta:
            return
        self._seen.add(id(tensor))
        copied = tensor.numel() <= _COPIED
        if isinstance(tensor, nn.Parameter):
            copied = tensor.numel() <= self._weights_left
            self._weights_left -= tensor.numel() if copied else 0
        self._tensors.append((name, _Kept(tensor, copied)))

    def _note_container(self, value: Any, name: Name, depth: int) -> None:
        if len(value) > _ENTRIES:
            self._others.append((name, _putting_back_many(value)))
            return
        self._containers.append((value, dict(value) if isinstance(value, dict) else list(value)))
        if depth:
            for item in value.values() if isinstance(value, dict) else value:
                if type(item) not in _PLAIN:
                    self._note(item, name, depth - 1)

    def _note_object(self, value: Any, name: Name, depth: int) -> None:
        """Note an object's attributes, those in slots too, and what they hold."""
        if isinstance(value, nn.Module):  # one that is registered nowhere
            for buffer in value.buffers(recurse=False):
                # A batch norm writes its statistics without a trace in their versions.
                self._seen.add(id(buffer))
                self._others.append((name, partial(_put_numbers, buffer, buffer.detach().clone())))
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:
            self._note_container(attributes, name, depth)
        slots = _slots(type(value))
        if slots:
            before = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
            self._others.append((name, partial(_put_into_slots, value, slots, before)))
            for item in before.values():
                self._note(item, name, depth - 1)

    def _note_class(self, kind: type, name: str) -> None:
        self._seen.add(id(kind))
        before = _class_attributes(kind)
        self._others.append(((name, kind.__name__), partial(_put_into_class, kind, before)))
        for key, value in before.items():
            self._note(value, (name, key), _DEPTH)


# -- Containers and attributes -----------------------------------------------------------------------------------------


def same_entries(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> bool:
    """Return whether the same keys, in the same order, have the very same values."""
    if len(now) != len(before):
        return False
    return not now or (all(map(is_, now.values(), before.values())) and all(map(is_, now, before)))


def _same(container: Any, before: Any) -> bool:
    return len(container) == len(before) and all(map(is_, container, before))


def _refill(container: Any, before: Any) -> None:
    container.clear()
    if isinstance(container, (dict, set)):
        container.update(before)
    else:
        container.extend(before)


def _putting_back_many(container: Any) -> Callable[[], str]:
    """Return what takes away what was added at the end of a large container; of any other change it tells."""
    count, last = len(container), None
    if isinstance(container, (list, dict)):
        last = next(reversed(container))
    why = f"a {type(container).__name__} of more than {_ENTRIES:,} entries"

    def put_back() -> str:
        more = len(container) - count
        if more <= 0 or last is None:
            return why if more else ""
        added = list(itertools.islice(reversed(container), more + 1))
        if added[more] is not last:
            return why
        for each in added[:more]:
            container.pop(each) if isinstance(container, dict) else container.pop()
        return ""

    return put_back


def _put_numbers(tensor: Tensor, before: Tensor) -> None:
    if not torch.equal(tensor, before):
        with torch.no_grad():
            tensor.detach().copy_(before)


@once_per_class
def _slots(kind: type) -> tuple[str, ...]:
    listed = (vars(base).get("__slots__", ()) for base in kind.__mro__)
    names = [name for slots in listed for name in ([slots] if isinstance(slots, str) else slots)]
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _put_into_slots(value: Any, slots: Collection[str], before: Mapping[str, Any]) -> None:
    for slot in slots:
        if slot not in before:
            if hasattr(value, slot):
                object.__delattr__(value, slot)
        elif getattr(value, slot, None) is not before[slot]:
            object.__setattr__(value, slot, before[slot])  # also of a frozen dataclass


def _class_attributes(kind: type) -> dict[str, Any]:
    """Return the values that a class holds: no functions, properties or other descriptors."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not (name.startswith("__") or callable(value) or hasattr(value, "__get__"))
    }


def _put_into_class(kind: type, before: Mapping[str, Any]) -> None:
    now = _class_attributes(kind)
    for name in now.keys() - before.keys():
        type.__delattr__(kind, name)
    for name, value in before.items():
        if now.get(name, before) is not value:
            type.__setattr__(kind, name, value)


# -- Whose objects are followed ----------------------------------------------------------------------------------------


@once_per_class
def _own_classes(kind: type) -> tuple[type, ...]:
    """Return the classes of a module that no library has made."""
    return tuple(base for base in kind.__mro__ if not _is_library(base))


@once_per_class
def _is_followed(kind: type) -> bool:
    """Return whether objects of a class are followed: the user's own, and those that merely hold others."""
    if kind.__module__ == "transformers.cache_utils":
        return True
    bases = [base for base in kind.__mro__ if base is not object]
    return bool(bases) and all(
        base in _INERT or base.__module__ in ("abc", "typing", "collections.abc") or not _is_library(base)
        for base in bases
        if not (issubclass(kind, _INERT) and base.__module__ in ("collections", "types"))
    )


@once_per_class
def _is_library(kind: type) -> bool:
    root = (kind.__module__ or "").partition(".")[0]
    if root in sys.stdlib_module_names and root != "__main__":
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return root in ("torch", "lrptrain") or any(f"/{each}/" in file.replace("\\", "/") for each in _LIBRARIES)


@once_per_class
def _is_left_alone(kind: type) -> bool:
    """Return whether nothing of the objects of a class is put back, whatever they hold."""
    return not (issubclass(kind, (Tensor, tuple, nn.Module, *_HOLDING, *_WITH_STATE)) or _is_followed(kind))


# -- What is put back by a state of its own ----------------------------------------------------------------------------


_WITH_STATE = (
    torch.Generator, np.random.RandomState, np.random.Generator, np.random.BitGenerator, random.Random, bytearray,
    array, BytesIO, StringIO, np.ndarray, Iterator,
)  # fmt: skip


def _putting_back(value: Any) -> Callable[[], object] | None:
    """Return what puts a generator, an array or bytes back, or tells that an iterator has moved; None for others."""
    if isinstance(value, torch.Generator):
        return partial(value.set_state, value.get_state())
    if isinstance(value, np.random.RandomState):
        return partial(value.set_state, value.get_state())
    if isinstance(value, np.random.Generator):
        return _putting_back(value.bit_generator)
    if isinstance(value, np.random.BitGenerator):
        return partial(setattr, value, "state", value.state)
    if isinstance(value, random.Random):
        return partial(value.setstate, value.getstate())
    if isinstance(value, (bytearray, array)):
        return partial(operator.setitem, value, slice(None), value[:])
    if isinstance(value, (BytesIO, StringIO)):
        return partial(_put_into_stream, value, value.getvalue(), value.tell())
    if type(value) is np.ndarray and value.flags.writeable:
        return _putting_back_array(value)
    if isinstance(value, Iterator) and not _is_followed(type(value)):
        place = _place_of(value)
        if place == -1:
            return lambda: _Unseen("an iterator that does not tell how far it has come")
        return lambda: "" if _place_of(value) == place else "an iterator, which cannot be wound back"
    return None


def _putting_back_array(values: np.ndarray) -> Callable[[], object]:
    if values.size <= _COPIED:
        before = values.copy()
        return lambda: None if _equal_arrays(values, before) else np.copyto(values, before)
    if values.dtype == object:
        return lambda: ""
    total = values.sum()
    why = "an array too large for a copy; make it a buffer (register_buffer)"
    return lambda: "" if np.array_equal(values.sum(), total, equal_nan=values.dtype.kind in "fc") else why


def _equal_arrays(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype == object:
        return one.shape == other.shape and all(map(is_, one.flat, other.flat))
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _put_into_stream(stream: Any, content: Any, place: int) -> None:
    if stream.getvalue() != content:
        stream.seek(0)
        stream.truncate()
        stream.write(content)
    stream.seek(place)


def _place_of(iterator: Iterator[Any]) -> object:
    """Return what tells how far an iterator is; -1 for one that does not say."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        return None if frame is None else (frame.f_lasti, [*map(id, frame.f_locals.values())])
    if isinstance(iterator, (itertools.count, itertools.repeat)):
        return repr(iterator)
    if hasattr(iterator, "tell"):
        return iterator.tell()
    hint = getattr(iterator, "__length_hint__", None)
    return -1 if hint is None else hint()


# -- Parameters --------------------------------------------------------------------------------------------------------


# Which parameters each model's forward has been seen to write, by whether it was training; none before the first call.
_WRITTEN_BY: WeakKeyDictionary[nn.Module, dict[bool, set[str]]] = WeakKeyDictionary()


class Parameters:
    """The parameters of a model, to be put back where its forward writes them, as the key encoder of MoCo is.

    A parameter that is given other memory (`p.data = ...`) gets its own back, which takes no copy. Those that are
    written in place are copied: all before the first call of a model in each mode, if there are not too many, then
    those that were seen to be written. One that is first written later is named; by `p.data.mul_(...)`, unnoticed.

    Args:
        model: The model; none of its weights are sharded.
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
        self._kept = {name: _Kept(p, name in copied) for name, p in plain.items()}

    def restore(self) -> list[Lost]:
        """Put back what has changed, and return what could not be."""
        touched = {name: kept for name, kept in self._kept.items() if kept.touched()}
        _WRITTEN_BY.setdefault(self._model, {}).setdefault(self._mode, set()).update(touched)
        return [
            Lost(name, "a parameter that no copy was made of")
            for name, kept in touched.items()
            if kept.changed() and not kept.restore()
        ]
