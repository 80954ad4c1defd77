"""The registry of methods, and what is known of each."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.types import NonFiniteError, Relevance, UnsupportedMethodError


@dataclass(frozen=True)
class RelevanceMaps:
    """What a method returns: relevance per token, and of the input and at the attention where it has them."""

    scores: Float[Tensor, "batch tokens"]
    input: Float[Tensor, "batch _ _"] | None = None
    attention: tuple[Float[Tensor, "batch heads length length"], ...] | None = None


@dataclass(frozen=True)
class Method:
    """A named way to attribute.

    Attributes:
        function: `function(explanation, **options) -> RelevanceMaps`.
        class_specific: Whether the map depends on the target.
        signed: Whether scores may be negative.
        differentiable: Whether a loss on the scores reaches the model's parameters (`create_graph=True`).
        reaches_input: Whether `Relevance.input` is given.
        source: Paper.
    """

    name: str
    function: Callable[..., RelevanceMaps]
    class_specific: bool
    signed: bool
    differentiable: bool
    reaches_input: bool
    source: str

    @property
    def options(self) -> dict[str, object]:
        """Options with their defaults."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}


_METHODS: dict[str, Method] = {}


def method(
    *, class_specific: bool, signed: bool, source: str, differentiable: bool = True, reaches_input: bool = False
) -> Callable:
    """Register the decorated function under its own name."""

    def register(function: Callable[..., RelevanceMaps]) -> Callable[..., RelevanceMaps]:
        name = function.__name__
        _METHODS[name] = Method(name, function, class_specific, signed, differentiable, reaches_input, source)
        return function

    return register


def methods() -> tuple[str, ...]:
    """The names of all methods that `attribute` knows."""
    return tuple(sorted(_METHODS))


def differentiable() -> tuple[str, ...]:
    """The names of the methods that can be trained through."""
    return tuple(name for name in methods() if _METHODS[name].differentiable)


def get_method(name: str, options: Mapping[str, object]) -> Method:
    """Look a method up and check its options.

    Raises:
        UnsupportedMethodError: If the method is unknown, or does not take one of the options.
    """
    if name not in _METHODS:
        raise UnsupportedMethodError(unknown_name("method", name, methods()))
    found = _METHODS[name]
    for option in sorted(set(options) - set(found.options)):
        raise UnsupportedMethodError(unknown_name(f"option of {name}", option, tuple(found.options)))
    return found


def unknown_name(what: str, name: str, known: Sequence[str]) -> str:
    """The message for a name that is not known, with the near ones."""
    near = get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"unknown {what} {name!r}; {hint}known are {', '.join(known) or 'none'}"


def check_finite(relevance: Relevance, leaf: Tensor) -> None:
    """Raise if a map holds NaN or infinity.

    Args:
        relevance: The maps of a method.
        leaf: The explained input, to name it where it is the cause.

    Raises:
        NonFiniteError: With the method, the samples and what to do.
    """
    for field, maps in (
        ("scores", (relevance.scores,)),
        ("input", () if relevance.input is None else (relevance.input,)),
        ("attention", relevance.attention or ()),
    ):
        for values in maps:
            if not values.isfinite().all():
                raise NonFiniteError(_why_not_finite(relevance, leaf, field, _rows_not_finite(values)))


def _rows_not_finite(values: Float[Tensor, "batch ..."]) -> list[int]:
    return (~values.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()


def _why_not_finite(relevance: Relevance, leaf: Tensor, field: str, rows: list[int]) -> str:
    """The message, which names the nearest cause: the input, the explained logits, or the method itself."""
    what = f"{relevance.method}: the {field} are NaN or infinite in samples {rows[:10]}"
    if set(rows) & set(_rows_not_finite(leaf)):
        return f"{what}, as is the input: replace such numbers in it"
    explained = [relevance.target] if relevance.other is None else [relevance.target, relevance.other]
    logits = torch.stack([relevance.logits.gather(1, classes[:, None])[:, 0] for classes in explained], 1)
    if set(rows) & set(_rows_not_finite(logits)):
        return f"{what}, as are the explained logits: choose another target, or check the model's weights"
    return (
        f"{what}, though input and logits are not: run the model in float32 or float64, check its weights, or take "
        "another method (generic_attention needs gradients only)"
    )
