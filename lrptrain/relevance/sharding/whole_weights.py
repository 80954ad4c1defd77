"""Compute with a sharded model's weights as if they were whole: each is gathered where an operation reads it.

The strategy's own hooks are off meanwhile, so that a pass of an explanation is none of the training: no gradient is
reduced, and nothing of FSDP's state moves. A `TorchFunctionMode` sees the operations, those of the model and those of
the rules alike, and gives them the whole weights of one module at a time; what autograd keeps of a weight is where to
find it. So no process ever holds more than its shards and the weights of one module.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import TensorWeakRef

from lrptrain.relevance.sharding.exchange import WeightExchange
from lrptrain.relevance.sharding.shards import (
    check_shards,
    has_shards,
    is_shard,
    is_sharded,
    shards_by_module,
    without_strategy,
)
from lrptrain.relevance.tape.functions import (
    QUESTIONS,
    canonical_name,
    is_in_place,
    is_transforming,
    sets_no_numbers,
    untransformed,
)
from lrptrain.relevance.tape.nodes import map_nested, tensors_in
from lrptrain.relevance.types import UnsupportedModelError

# Properties that are numbers of the tensor; the others say what kind of tensor it is.
_NUMBERS = frozenset({"T", "mT", "H", "mH", "real", "imag"})
# What else is asked of a tensor without reading a number of it.
_QUESTIONS = QUESTIONS | {
    "is_inference", "is_pinned", "is_shared", "is_same_size", "is_set_to", "hash", "requires_grad", "register_hook",
    "retain_grad", "untyped_storage", "register_post_accumulate_grad_hook", "full_tensor", "to_local", "redistribute",
}  # fmt: skip
_ALIASES = frozenset({"detach", "data"})

# What is open now, the innermost last. All of it belongs to one thread: explanations take turns.
_open: list["WholeWeights"] = []
# By the id of a shard without its graph: a weak reference that tells whether the id is still its, and the parameter.
_copies: dict[int, tuple[TensorWeakRef, Tensor]] = {}


@contextmanager
def whole_weights(model: nn.Module) -> Iterator[None]:
    """Compute inside as if the weights of a model were whole; of a model that is not sharded, do nothing.

    All processes must enter and leave it at the same time. What they do inside is up to each, but for collectives of
    their own, before which `meet` is to be called. Who leaves waits until nobody needs its shards.
    """
    if not (dist.is_available() and dist.is_initialized()):
        yield
        return
    check_shards(model)
    with without_strategy(model):
        if not has_shards(model) or any(each.holds(model) for each in _open):
            yield
            return
        weights = WholeWeights(model)
        _open.append(weights)
        try:
            with weights:
                yield
        finally:
            _open.remove(weights)
            weights.wait()


def check_graph(model: nn.Module, create_graph: bool) -> None:
    """Check that no graph is asked for that would lead to shards."""
    if create_graph and is_sharded(model):
        raise UnsupportedModelError(
            "a map of a sharded model has no graph that leads to its weights (create_graph=True): train on maps with "
            "DDP, or on a single device"
        )


def meet() -> None:
    """Wait, inside of `whole_weights`, until all processes are here: they can then do a collective of their own."""
    for weights in _open:
        weights.wait()


@dataclass(frozen=True)
class _Place:
    """Where to find what autograd would keep of a weight: a view of it."""

    weight: Tensor
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    versions: tuple[int, int]


@dataclass(frozen=True)
class _Kept:
    """What autograd keeps of anything else, and how often it was written then."""

    tensor: Tensor
    version: int


class WholeWeights(TorchFunctionMode):
    """Gives the operations that are called inside the whole weights of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        units = shards_by_module(model)
        self._exchange = WeightExchange(units)
        # By parameter: the number of its module, and its own in there.
        self._places = {x: (i, j) for i, unit in enumerate(units) for j, (_, x) in enumerate(unit)}
        # The whole weights of one module: that which was asked for last.
        self._number = -1
        self._whole: list[Tensor] = []

    def has(self, parameter: Tensor) -> bool:
        """Whether a shard is a parameter of the model."""
        return parameter in self._places

    def holds(self, model: nn.Module) -> bool:
        """Whether the shards of a model are among those of this one."""
        return all(self.has(x) for x in model.parameters() if is_shard(x))

    def wait(self) -> None:
        """Wait until no process needs weights."""
        self._number = -1
        self._whole = []
        with _undisturbed():
            self._exchange.wait()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry out one call, with whole weights."""
        kwargs = kwargs or {}
        shards = [x for x in tensors_in((args, kwargs)) if is_shard(x)]
        if not shards or _asks(func):
            return func(*args, **kwargs)
        name = canonical_name(func)
        if name in _ALIASES:
            return _remembered(shards[0], func(*args, **kwargs))
        if is_in_place(func, args, kwargs) and args and is_shard(args[0]):
            raise UnsupportedModelError(
                f"{name} writes into a sharded weight, of which this process holds a part; explain a model of its own"
            )
        parameters = {id(x): _parameter(x) for x in shards}
        gathered = {key: _whole(parameter) for key, parameter in parameters.items()}
        args, kwargs = map_nested((args, kwargs), Tensor, lambda x: gathered.get(id(x), x))
        if not torch.is_grad_enabled() or is_transforming():
            return func(*args, **kwargs)
        by_memory = {x.untyped_storage()._cdata: parameters[key] for key, x in gathered.items()}
        with torch.autograd.graph.saved_tensors_hooks(_packing(by_memory), _unpack):
            return func(*args, **kwargs)

    def whole(self, parameter: Tensor) -> Tensor:
        """Return a whole weight, without a graph."""
        number, index = self._places[parameter]
        if number != self._number:
            self._whole = []  # before others take memory
            with _undisturbed():
                self._whole = self._exchange.gather(number)
            self._number = number
        return self._whole[index]


def _asks(function: Callable[..., Any]) -> bool:
    """Whether a call asks what kind of tensor a weight is, or sets its gradient, and reads no number of it."""
    method = getattr(function, "__name__", "")
    if method == "__get__":
        return function.__self__.__name__ not in _NUMBERS | _ALIASES  # type: ignore[attr-defined]
    return sets_no_numbers(function) or canonical_name(function) in _QUESTIONS


def _parameter(shard: Tensor) -> Tensor:
    """The parameter that a shard is, or is a copy of without its graph."""
    reference, parameter = _copies.get(id(shard), (None, shard))
    return parameter if reference is None or reference() is shard else shard


def _remembered(shard: Tensor, copy: Tensor) -> Tensor:
    for key in [key for key, (reference, _) in _copies.items() if reference() is None]:
        del _copies[key]
    _copies[id(copy)] = (TensorWeakRef(copy), _parameter(shard))
    return copy


def _whole(parameter: Tensor) -> Tensor:
    for weights in reversed(_open):
        if weights.has(parameter):
            return weights.whole(parameter)
    raise UnsupportedModelError(
        "the model computes with DTensors that are no parameters of its own; explain it with plain activations"
    )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Gather beside what is recorded or differentiated."""
    with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.no_grad(), untransformed():
        yield


def _versions(shard: Tensor) -> tuple[int, int]:
    """How often a shard was written, through the DTensor and by itself."""
    return shard._version, shard._local_tensor._version  # type: ignore[attr-defined]


def _packing(by_memory: dict[int, Tensor]) -> Callable[[Tensor], _Place | _Kept]:
    """What autograd keeps of the tensors of one call, of which some are the whole weights of these shards."""

    def pack(tensor: Tensor) -> _Place | _Kept:
        shard = by_memory.get(tensor.untyped_storage()._cdata)
        if shard is None:
            return _Kept(tensor, tensor._version)
        offset = int(tensor.storage_offset())
        return _Place(shard, tensor.shape, tensor.stride(), offset, _versions(shard))

    return pack


def _unpack(kept: _Place | _Kept) -> Tensor:
    """Gather a weight once more, or return what was kept."""
    if isinstance(kept, _Kept):
        if kept.tensor._version != kept.version:
            raise RuntimeError("a tensor needed for a gradient has been modified by an inplace operation")
        return kept.tensor
    if _versions(kept.weight) != kept.versions:
        raise RuntimeError("a sharded weight needed for a gradient has been modified by an inplace operation")
    with torch._C.DisableTorchFunction():
        return _whole(kept.weight).as_strided(kept.size, kept.stride, kept.offset)
