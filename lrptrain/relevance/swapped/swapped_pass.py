"""A forward pass whose calls have the gradients of AttnLRP's rules, by a plan."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lrptrain.relevance.passes.plain_pass import PlainPass
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.swapped.plan import (
    CONSTANT,
    INPUT,
    METHOD,
    Mismatch,
    Plan,
    constants_of,
    is_counted,
    is_decomposed,
    note_made,
    operands_of,
)
from lrptrain.relevance.swapped.swaps import with_slope
from lrptrain.relevance.tape.functions import REORDERED, as_python, enterable

if TYPE_CHECKING:
    from lrptrain.relevance.explanation import Explanation

_MAY_HOLD_WEIGHTS = frozenset({nn.Parameter, tuple, list})


@dataclass(eq=False)
class SwappedPass(PlainPass):
    """Counts the calls of a model, checks that they are those of a plan, and swaps what it says.

    Its graph is for one gradient, and nothing else: the derivative of that gradient would be another one.

    Attributes:
        plan: What differs from the gradient.
        place: What relevance is asked for: the input, or the sum of a text's embeddings.
    """

    method = METHOD
    plan: Plan | None = None
    place: Tensor | None = field(default=None, init=False)
    _version: int = field(default=0, init=False)
    _number: int = field(default=0, init=False)
    _is_inside: bool = field(default=False, init=False)
    _sources: dict[int, Tensor] = field(default_factory=dict, init=False)
    _made: dict[int, int] = field(default_factory=dict, init=False)
    _weights: dict[int, Tensor] = field(default_factory=dict, init=False)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry out one call of the model, as the plan says."""
        if self._is_inside or not self._is_first or not is_counted(func):
            return super().__torch_function__(func, types, args, kwargs)
        plan, number = self.plan, self._number
        assert plan is not None
        self._number += 1
        args, kwargs = self._without_weights(args), kwargs and self._without_weights(kwargs)
        if number >= len(plan.calls) or plan.calls[number] != func:
            raise Mismatch(number)
        asked, made = plan.operands[number], self._made
        if asked is not None:
            # Another operand, or one that is a constant now: another way through the model, and another rule.
            given = [made.get(id(x), INPUT) if x.requires_grad else CONSTANT for x in operands_of(args, kwargs)]
            if asked != tuple(given):
                raise Mismatch(number)
        if number in plan.constants and plan.constants[number] != constants_of(args, kwargs):
            raise Mismatch(number)
        if is_decomposed(func):
            with self:
                result = enterable(func)(*args, **(kwargs or {}))
        elif number in plan.direct:
            result = func(*args, **kwargs) if kwargs else func(*args)
        else:
            result = self._result(number, func, types, args, kwargs or {})
        if type(result) is Tensor:
            made[id(result)] = number
        else:
            note_made(made, result, number)
        if number == plan.place:
            if not isinstance(result, Tensor):
                raise Mismatch(number)
            self.place, self._version = result, result._version
        return result

    def _without_weights(self, given: Any) -> Any:
        """Arguments with constants for weights, so that what requires a gradient is what depends on the input.

        The weights themselves are left alone: another thread may train them meanwhile.
        """
        if isinstance(given, nn.Parameter):
            return self._weights.setdefault(id(given), given.detach()) if given.requires_grad else given
        if type(given) is dict:
            return {name: self._without_weights(x) for name, x in given.items()}
        if type(given) in (tuple, list) and not _MAY_HOLD_WEIGHTS.isdisjoint(map(type, given)):
            return type(given)(map(self._without_weights, given))
        return given

    def _result(
        self, number: int, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        plan = self.plan
        assert plan is not None
        swap, cut, source = plan.swaps.get(number), plan.cut.get(number), plan.sources.get(number)
        if swap is not None or cut is not None:
            if not kwargs and func in REORDERED:  # places are those of the written order
                func, args = as_python(func, args)
            if source is not None:
                self._sources[source[0]] = args[source[1]]
            if cut is not None:
                args = tuple([x.detach() if i in cut else x for i, x in enumerate(args)])
        if swap is not None:
            result = swap(func, args, kwargs)
        else:
            self._is_inside = True
            try:
                result = super().__torch_function__(func, types, args, kwargs)
            finally:
                self._is_inside = False
        end = plan.ends.get(number)
        return result if end is None else with_slope(self._sources.pop(end), result)

    def as_value(self, numbers: Tensor) -> Any:
        """The logits; they are those of the plan's pass only if all of its calls were made."""
        if self.plan is None or self._number != len(self.plan.calls):
            raise Mismatch("the model has made fewer calls")
        return super().as_value(numbers)

    def relevance(self, explanation: "Explanation") -> Tensor:
        """Relevance of the place: what it is, times the swapped gradient of what is explained."""
        assert self.plan is not None
        place = self.leaf if self.plan.place is None else self.place
        if place is None or (place is self.place and place._version != self._version):
            raise Mismatch("the place was not made, or written into afterwards")
        logits = explanation.recording.output.tensor
        try:
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(explanation.explained(logits).sum(), place)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # such as a tensor that a later call has written into
            raise Mismatch from error
        return at_least_float32(gradient) * at_least_float32(place.detach())
