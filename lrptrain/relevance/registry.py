"""The registry of methods, and what is known of each."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

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
        function: `function(recording, **options) -> Maps`.
        class_specific: Whether the map depends on the target.
        signed: Whether scores may be negative.
        reaches_input: Whether `Relevance.input` is given.
        source: Paper.
    """

    name: str
    function: Callable[..., Maps]
    class_specific: bool
    signed: bool
    reaches_input: bool
    source: str

    @property
    def options(self) -> dict[str, object]:
        """Options with their defaults."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}


_METHODS: dict[str, Method] = {}


def method(*, class_specific: bool, signed: bool, source: str, reaches_input: bool = False) -> Callable:
    """Register the decorated function under its own name."""

    def register(function: Callable[..., Maps]) -> Callable[..., Maps]:
        name = function.__name__
        _METHODS[name] = Method(name, function, class_specific, signed, reaches_input, source)
        return function

    return register


def methods() -> tuple[str, ...]:
    """The names of all methods that `attribute` knows."""
    return tuple(sorted(_METHODS))


def get_method(name: str, options: dict) -> Method:
    """Look a method up and check its options.

    Raises:
        UnsupportedMethodError: If the method is unknown, or does not take one of the options.
    """
    if name not in _METHODS:
        raise UnsupportedMethodError(f"unknown method {name!r}; known are {', '.join(methods())}")
    found = _METHODS[name]
    unknown = sorted(set(options) - set(found.options))
    if unknown:
        taken = ", ".join(found.options) or "none"
        raise UnsupportedMethodError(f"{name} has no option {', '.join(unknown)}; its options: {taken}")
    return found
