"""A forward pass whose calls are those of a plan, with something done at some of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lrptrain.relevance.passes.plain_pass import PlainPass
from lrptrain.relevance.registry import RelevanceMaps
from lrptrain.relevance.swapped.calls import (
    CONSTANT,
    INPUT,
    Call,
    is_counted,
    is_decomposed,
    note_made,
    operands_of,
    settings_of,
)
from lrptrain.relevance.swapped.plan import Mismatch, Plan
from lrptrain.relevance.tape.functions import enterable

if TYPE_CHECKING:
    from lrptrain.relevance.explanation import Explanation

_HOLD_NONE = frozenset({Tensor, int, float, bool, str, type(None), slice, type(...), torch.Size, torch.dtype})


_NONE = Call(Call, None)  # no function of a model's
_requires_grad = attrgetter("requires_grad")


def _saving_hooks() -> Any:
    """What is called for each tensor that is saved for a gradient, as in a checkpoint."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


class KeptCall(NamedTuple):
    """A call of the model: what it was given, what it made, and the versions of all these tensors."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Tensor
    versions: tuple[int, ...]

    @property
    def tensors(self) -> list[Tensor]:
        """What it was given and has made."""
        return [self.result, *operands_of(self.args, self.kwargs)]

    def check(self) -> None:
        """Raise if a later call has written into one of the tensors."""
        if self.versions != tuple([x._version for x in self.tensors]):
            raise Mismatch("written into afterwards")


@dataclass(eq=False)
class PlannedPass(PlainPass):
    """Counts the calls of a model, checks that they are those of a plan, and does what that says.

    Its graph is for one gradient, and nothing else.

    Attributes:
        plan: The calls.
        kept: Those that the map is made of.
    """

    plan: Plan = field(kw_only=True)
    kept: dict[int, KeptCall] = field(default_factory=dict, init=False)
    _number: int = field(default=0, init=False)
    _is_inside: bool = field(default=False, init=False)
    _made: dict[int, int] = field(default_factory=dict, init=False)
    _weights: dict[int, Tensor] = field(default_factory=dict, init=False)
    _masks: dict[int, Tensor] = field(default_factory=dict, init=False)
    _hooks: Any = field(default_factory=_saving_hooks, init=False)

    def maps(self, explanation: "Explanation") -> RelevanceMaps:
        """Return the relevance of the input, by one gradient of what is explained."""
        raise NotImplementedError

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry out one call of the model, as the plan says."""
        if self._is_inside or not self._is_first:
            return super().__torch_function__(func, types, args, kwargs)
        number, plan = self._number, self.plan
        call = plan.calls[number] if number < len(plan.calls) else _NONE
        if func is not call.function and func != call.function:
            if is_counted(func):
                raise Mismatch(number)
            return super().__torch_function__(func, types, args, kwargs)
        self._number = number + 1
        if _saving_hooks() is not self._hooks:  # a checkpoint would run its calls once more, without a plan
            raise Mismatch(number)
        if call.may_take_weights:
            args = tuple([x if type(x) in _HOLD_NONE else self._without_weights(x) for x in args])
            kwargs = kwargs and self._without_weights(kwargs)
        made = self._made
        if call.operands is not None:
            # Another operand, or one that is a constant now: another way through the model, and another rule.
            given = [made.get(id(x), INPUT) if x.requires_grad else CONSTANT for x in operands_of(args, kwargs)]
            if call.operands != tuple(given):
                raise Mismatch(number)
        if call.settings is not None:
            depends = _requires_grad if plan.reads_places else None
            if call.settings != settings_of(func, args, kwargs, depends):
                raise Mismatch(number)
        if call.is_direct:
            result = func(*args, **kwargs) if kwargs else func(*args)
        else:
            result = self._result(call, func, types, args, kwargs or {})
        if type(result) is Tensor:
            made[id(result)] = number
        else:
            note_made(made, result, number)
        if call.is_kept:
            self._keep(number, func, args, kwargs or {}, result)
        return result

    def _check_mask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Leave a query to the tape that the lowest number keeps from all keys: fused kernels have another gradient."""
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        if mask is None or mask.dtype == torch.bool or id(mask) in self._masks:
            return
        if bool((mask <= torch.finfo(mask.dtype).min / 2).all(-1).any()):
            raise Mismatch("a query without keys")
        self._masks[id(mask)] = mask

    def _keep(
        self, number: int, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        if not isinstance(result, Tensor):
            raise Mismatch(number)
        call = KeptCall(func, args, kwargs, result, ())
        self.kept[number] = call._replace(versions=tuple([x._version for x in call.tensors]))

    def _without_weights(self, given: Any) -> Any:
        """Arguments with constants for weights, so that what requires a gradient is what depends on the input.

        The weights themselves are left alone: another thread may train them meanwhile.
        """
        kind = type(given)
        if kind is nn.Parameter or isinstance(given, nn.Parameter):
            if not given.requires_grad:
                return given
            constant = self._weights.get(id(given))
            return constant if constant is not None else self._weights.setdefault(id(given), given.detach())
        if kind is tuple or kind is list:
            return kind([x if type(x) in _HOLD_NONE else self._without_weights(x) for x in given])
        if kind is dict:
            return {name: x if type(x) in _HOLD_NONE else self._without_weights(x) for name, x in given.items()}
        return given

    def _result(
        self, call: Call, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Carry out a call that is looked at, as a plain pass does, or written out in others."""
        if func is F.scaled_dot_product_attention:
            self._check_mask(args, kwargs)
        if is_decomposed(func):
            with self:
                return enterable(func)(*args, **kwargs)
        self._is_inside = True
        try:
            return super().__torch_function__(func, types, args, kwargs)
        finally:
            self._is_inside = False

    def as_value(self, numbers: Tensor) -> Any:
        """The logits; they are those of the plan's pass only if all of its calls were made."""
        if self._number != len(self.plan.calls):
            raise Mismatch("the model has made fewer calls")
        return super().as_value(numbers)

    def gradient(self, explanation: "Explanation", places: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The gradient of what is explained, at tensors that nothing was written into."""
        for call in self.kept.values():
            call.check()
        logits = explanation.recording.output.tensor
        try:
            with torch.enable_grad():
                return torch.autograd.grad(explanation.explained(logits).sum(), places)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # such as a tensor that a later call has written into
            raise Mismatch from error
