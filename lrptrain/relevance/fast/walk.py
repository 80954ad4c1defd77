"""One walk over a model for all who ask about its modules while it is explained: torch walks anew at each call.

Nothing outlives the call of `attribute` that made it: a model that is changed between two calls is walked anew.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from torch import Tensor, nn

from lrptrain.relevance.fast.switch import is_plain

T = TypeVar("T")
# What torch keeps of every module: hooks, which a forward does not change, and what is looked at elsewhere.
_BOOKKEEPING = vars(nn.Module()).keys() | {"forward"}


class Walk(NamedTuple):
    """The modules of a model by name, each once, a module before those that it holds."""

    model: nn.Module
    named: list[tuple[str, nn.Module]]
    facts: dict[Callable[..., Any], Any]


_walk: ContextVar[Walk | None] = ContextVar("walk", default=None)


@contextmanager
def walked(model: nn.Module) -> Iterator[None]:
    """Walk over a model once; who asks for its modules or weights inside, gets those of now."""
    token = _walk.set(None if is_plain() else Walk(model, _walked_over(model), {}))
    try:
        yield
    finally:
        _walk.reset(token)


def _walked_over(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """What `model.named_modules()` yields, without a generator for each level."""
    found: list[tuple[str, nn.Module]] = []
    seen: set[nn.Module] = set()
    pending = [("", model)]
    while pending:
        name, module = pending.pop()
        if module in seen:
            continue
        seen.add(module)
        found.append((name, module))
        for key, inner in reversed([*module._modules.items()]):
            if inner is not None:
                pending.append((f"{name}.{key}" if name else key, inner))
    return found


def named_modules_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return all modules by name, as `model.named_modules()` does."""
    walk = _walk.get()
    return walk.named if walk is not None and walk.model is model else list(model.named_modules())


def modules_of(model: nn.Module) -> list[nn.Module]:
    """Return all modules, each once, a module before those that it holds."""
    return [module for _, module in named_modules_of(model)]


def weights_of(model: nn.Module) -> list[Tensor]:
    """Return the parameters and buffers of a model; those that are shared several times."""
    found: list[Tensor] = []
    for _, module in named_modules_of(model):
        for store in (module._parameters, module._buffers):
            if store:
                found += [x for x in store.values() if x is not None]
    return found


def once_per_walk(function: Callable[[nn.Module], T]) -> Callable[[nn.Module], T]:
    """Remember what a function tells of a model while that is walked over."""

    def remembered(model: nn.Module) -> T:
        walk = _walk.get()
        if walk is None or walk.model is not model:
            return function(model)
        if function not in walk.facts:
            walk.facts[function] = function(model)
        found: T = walk.facts[function]
        return found

    return remembered


@once_per_walk
def own_attributes_of(model: nn.Module) -> list[tuple[str, nn.Module, list[tuple[str, Any]]]]:
    """Return all modules by name, each with its attributes that are not torch's own, and their names."""
    return [
        (name, module, [each for each in vars(module).items() if each[0] not in _BOOKKEEPING])
        for name, module in named_modules_of(model)
    ]


def once_per_class(function: Callable[[type], T]) -> Callable[[type], T]:
    """Remember what a function returns for a class; of a thousand of them, which is more than models have."""
    return cast("Callable[[type], T]", lru_cache(1024)(function))
