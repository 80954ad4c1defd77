"""The registry of methods, and what is known of each."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.types import UnsupportedMethodError


@dataclass(frozen=True)
class Maps:
    """What a method returns: relevance per token, and of the input and at the attention where it has them."""

    scores: Float[Tensor, "batch tokens"]
    input: Float[Tensor, "batch _ _"] | None = None
    attention: tuple[Float[Tensor, "batch heads length length"], ...] | None = None


@dataclass(frozen=True)
class Method:
    """A named way to attribute.

    Attributes:
        function: `function(explanation, **options) -> Maps`.
        class_specific: Whether the map depends on the target.
        signed: Whether scores may be negative.
        differentiable: Whether a loss on the scores reaches the model's parameters (`create_graph=True`).
        reaches_input: Whether `Relevance.input` is given.
        source: Paper.
    """

    name: str
    function: Callable[..., Maps]
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

    def register(function: Callable[..., Maps]) -> Callable[..., Maps]:
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
        raise UnsupportedMethodError(unknown("method", name, methods()))
    found = _METHODS[name]
    for option in sorted(set(options) - set(found.options)):
        raise UnsupportedMethodError(unknown(f"option of {name}", option, tuple(found.options)))
    return found


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """The message for a name that is not known, with the near ones."""
    near = get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"unknown {what} {name!r}; {hint}known are {', '.join(known) or 'none'}"
