"""The calls of a model in a pass: what each is given, who made it, and what a later pass does there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lrptrain.relevance.passes.plain_pass import is_looked_at
from lrptrain.relevance.swapped.swaps import Swap
from lrptrain.relevance.tape.functions import (
    ALONG,
    AVERAGES,
    DECOMPOSED,
    ENTRIES,
    FUNCTIONS,
    MAXIMA,
    QUESTIONS,
    RESHAPES,
    SUMS,
    TRANSPOSITIONS,
    WEIGHTED,
    canonical_name,
    is_in_place,
)
from lrptrain.relevance.tape.tape import Tape

FUSED = "scaled_dot_product_attention"
INDEXING = frozenset({"getitem", "index_select", "take_along_dim", "gather", "take"})
"""Operations that may take samples in another order, by tensors of indices."""
READING_NUMBERS = (
    (SUMS | AVERAGES | MAXIMA | ALONG | TRANSPOSITIONS | INDEXING)
    | {"pow", "softmax", "log_softmax", "mean", "sum", "einsum", "layer_norm", "rms_norm", "group_norm"}
    | {"roll", "flip", "fliplr", "flipud", "rot90", FUSED}
)
"""Operations that have a rule for some exponents or axes only: others are for the tape to judge."""
NOTED = READING_NUMBERS | (ENTRIES - RESHAPES - {"expand", "expand_as", "broadcast_to", "repeat"})
"""And those whose settings say where entries go, of which the sizes say nothing."""
INPUT, CONSTANT = -1, -2
"""An operand that no call made, and one that does not depend on the input."""
OUTPUTS = 20
"""A call of several outputs has the number of the call and, from this bit on, that of the output."""
Settings = tuple[Any, ...]
_SCALARS = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})


@dataclass(slots=True)
class Call:
    """One call of a model, which a later pass must make again, and what it does there.

    Attributes:
        function: What the model calls.
        operands: Of each tensor that it is given, the number of the call that made it, INPUT or CONSTANT; None where
            nothing is asked, as of what the answer does not come from.
        settings: What it is given that is no tensor, where that matters.
        with_places: The same with the sizes of constants.
        may_take_weights: Whether parameters may be among its arguments: constants are, or the input.
        writes: Whether it writes into a tensor that it is given.
        swap: What carries it out with another gradient.
        cut: The places of operands that are held fixed.
        source: It begins what several calls are together: the number of that, and the place of its argument.
        end: Its result is that of several calls, by the number of them.
        is_kept: Whether a map is made of it.
        is_direct: Whether it is carried out as it is.
    """

    function: Callable[..., Any]
    operands: tuple[int, ...] | None
    settings: Settings | None = None
    with_places: Settings | None = None
    may_take_weights: bool = True
    writes: bool = False
    swap: Swap | None = None
    cut: frozenset[int] | None = None
    source: tuple[int, int] | None = None
    end: int | None = None
    is_kept: bool = False
    is_direct: bool = False

    @property
    def is_special(self) -> bool:
        """Whether a later pass has something to do there."""
        return self.is_kept or any(each is not None for each in (self.swap, self.cut, self.end))

    @property
    def may_be_direct(self) -> bool:
        """Whether a plain pass has nothing to do there: weights are constant."""
        name = canonical_name(self.function)
        if self.is_special or name == FUSED or is_decomposed(self.function):
            return False
        return name in WEIGHTED or not is_looked_at(self.function)


@lru_cache(FUNCTIONS)
def is_counted(func: Callable[..., Any]) -> bool:
    """Return whether a call has a number: questions for shapes and flags have none."""
    name = canonical_name(func)
    is_question = name in QUESTIONS or name in ("requires_grad", "set_grad_enabled")
    return not is_question and getattr(func, "__name__", "") != "__set__"


@lru_cache(FUNCTIONS)
def is_decomposed(func: Callable[..., Any]) -> bool:
    """Return whether a call is written out in others, which are counted in its place."""
    return canonical_name(func) in DECOMPOSED


@lru_cache(FUNCTIONS)
def _is_indexing(func: Callable[..., Any]) -> bool:
    return canonical_name(func) in INDEXING


def operands_of(args: Sequence[Any], kwargs: dict[str, Any] | None) -> list[Tensor]:
    """The tensors among the arguments of a call, and in their lists, in order."""
    found: list[Tensor] = []
    for x in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (tuple, list)):
            found += [each for each in x if isinstance(each, Tensor)]
    return found


def settings_of(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None,
    depends: Callable[[Tensor], bool] | None,
) -> Settings:
    """What is no tensor among the arguments of a call; if places matter, how large constants are, which do not depend.

    Where they do not, of indices only those of the first axis, and whether tensors of indices are in order.
    """
    given = (*args, *kwargs, *kwargs.values()) if kwargs else args
    if depends is not None or not _is_indexing(func):
        return _settings(given, depends)
    first = args[1] if len(args) > 1 else None
    first = first[0] if isinstance(first, tuple) and first else first
    found = _settings([x for x in given if isinstance(x, (Tensor, tuple, list))], None, is_index=True)
    return *found, len(given), None if isinstance(first, Tensor) else repr(first)


def _settings(given: Iterable[Any], depends: Callable[[Tensor], bool] | None, is_index: bool = False) -> Settings:
    found: list[Any] = []
    for x in given:
        kind = type(x)
        if kind in _SCALARS:
            found.append(None if is_index else x)
        elif isinstance(x, Tensor):
            if x.ndim == 1 and not x.is_floating_point():
                found.append(bool((x == torch.arange(len(x), device=x.device)).all()))
            else:
                found.append(None if depends is None or depends(x) else x.shape[1:])
        elif kind is tuple or kind is list or isinstance(x, (tuple, list)):
            found.append(_settings(x, depends, is_index))
        else:
            found.append(None if is_index else repr(x))
    return tuple(found)


def note_made(made: dict[int, int], result: Any, number: int) -> None:
    """Note which call made a tensor, or several."""
    if isinstance(result, Tensor):
        made[id(result)] = number
    elif isinstance(result, (tuple, list)):
        for place, each in enumerate(result):
            note_made(made, each, number | place << OUTPUTS)


@dataclass(eq=False)
class NotingTape(Tape):
    """A tape that notes which call of the model made each operation.

    Attributes:
        calls: Those of the model, in order.
        numbers: By the id of an operation, the number of the call that it is part of.
        is_private: Whether a call does what no plan can follow: it takes `.data`, or hooks a gradient.
    """

    calls: list[Call] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    is_private: bool = False
    _made: dict[int, int] = field(default_factory=dict, init=False)
    _is_inside: bool = field(default=False, init=False)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry out one call of the model, record it, and note its number."""
        if self._running is None or self._is_inside or not is_counted(func):
            return super().__torch_function__(func, types, args, kwargs)
        number, start = len(self.calls), len(self.nodes)
        tensors = operands_of(args, kwargs)
        made = [self._made.get(id(x), INPUT) if self._depends(x) else CONSTANT for x in tensors]
        call = Call(func, tuple(made), writes=is_in_place(func, args, kwargs or {}))
        call.may_take_weights = INPUT in made or any(
            x.is_floating_point() for x, each in zip(tensors, made, strict=True) if each == CONSTANT
        )
        self.calls.append(call)
        name = canonical_name(func)
        call.settings = settings_of(func, args, kwargs, None)
        if name in NOTED:
            call.with_places = settings_of(func, args, kwargs, self._depends)
        self.is_private |= name in ("data", "register_hook") and max(made, default=CONSTANT) != CONSTANT
        # What is written out call by call is counted call by call.
        self._is_inside = not is_decomposed(func)
        try:
            result = super().__torch_function__(func, types, args, kwargs)
            note_made(self._made, result, number)
            return result
        finally:
            self._is_inside = False
            for node in self.nodes[start:]:
                self.numbers.setdefault(id(node), number)
