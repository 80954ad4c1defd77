"""What of a model's output is explained: its logits, or one number per sample that functions make of the output."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.relevance.output.outputs import check_not_nan, described, field_of, read_logits
from lrptrain.relevance.targets import LOGITS, EntryTarget
from lrptrain.relevance.types import UnsupportedModelError

# Makes one number per sample of a model's output.
HeadFunction = Callable[[Any], Float[Tensor, " batch"]]


@runtime_checkable
class KnowsSamples(Protocol):
    """A function of a model's output that can be asked for some of the samples only."""

    def __call__(self, output: Any) -> Float[Tensor, " batch"]:
        """Return one number per sample."""

    def of_samples(self, chosen: Int[Tensor, " chosen"]) -> Self | None:
        """Return the function for some samples, or None if it needs the whole batch."""


@dataclass(frozen=True)
class Head:
    """What is read from a model's output.

    Attributes:
        functions: The functions whose numbers stand in the place of classes: one, or the one that is explained and the
            one that it is told apart from. None of them for the model's own logits.
    """

    functions: tuple[HeadFunction, ...] = ()

    def read(self, output: Any, samples: int) -> Float[Tensor, "batch numbers"]:
        """Return the numbers that can be explained, one column for each class or function."""
        if not self.functions:
            return read_logits(output, samples)
        columns = [_numbers(function, output, samples) for function in self.functions]
        return columns[0] if len(columns) == 1 else torch.cat(columns, 1)

    def of_samples(self, chosen: Int[Tensor, " chosen"]) -> "Head | None":
        """Return the head for some samples, or None if only the whole batch can be read."""
        parts: list[HeadFunction] = []
        for function in self.functions:
            part = function.of_samples(chosen) if isinstance(function, KnowsSamples) else None
            if part is None:
                return None
            parts.append(part)
        return Head(tuple(parts))


def _numbers(function: HeadFunction, output: Any, samples: int) -> Float[Tensor, "batch 1"]:
    numbers = function(output)
    if not isinstance(numbers, Tensor) or numbers.shape not in ((samples,), (samples, 1)):
        raise ValueError(
            f"a target that is a function must return one number per sample, [{samples}]; it returned "
            f"{described(numbers)} for {described(output)}"
        )
    if not numbers.is_floating_point():
        raise ValueError(
            f"a target that is a function must return floating-point numbers, not {numbers.dtype}: those of an argmax "
            "or a comparison have no gradient; return the logit itself"
        )
    check_not_nan(numbers, "numbers")
    return numbers if numbers.ndim == 2 else numbers.unsqueeze(1)


def as_head(target: Any, other: Any, output: Any) -> tuple[Head, Any, Any]:
    """Return the head of targets that are functions or index an output of several axes, and which numbers count."""
    first = _function(target, output)
    second = None if other is None else _function(other, output)
    if first is None and second is None:
        return Head(), target, other
    if first is None or (second is None and other is not None):
        raise ValueError(
            "target and other must both be classes, or both be functions or tuples (target=None is a class, the "
            "predicted one)"
        )
    return (Head((first,)), 0, None) if second is None else (Head((first, second)), 0, 1)


def _function(target: Any, output: Any) -> HeadFunction | None:
    if callable(target):
        return target  # type: ignore[no-any-return]
    if not isinstance(target, (list, tuple)) or not target:
        return None
    several = isinstance(target, list) and all(isinstance(entry, tuple) for entry in target)
    if not several and not isinstance(target, tuple):
        return None
    logits = field_of(output, *LOGITS)
    if logits is None:
        raise UnsupportedModelError(
            f"a target that is a tuple indexes logits, and the model returned {described(output)}: take "
            "target=lambda output: ... (one number per sample, [batch])"
        )
    # Of logits [batch, classes] a tuple is a sequence of classes, one per sample.
    return EntryTarget(target) if logits.ndim > 2 or several else None
