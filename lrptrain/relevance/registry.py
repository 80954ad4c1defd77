"""The registry of methods, and what is known of each."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.advice import other_methods
from lrptrain.relevance.propagation.composite import custom_rules
from lrptrain.relevance.types import NonFiniteError, Registration, Relevance, UnsupportedMethodError, unknown_name

Needs = Literal["answers", "gradient", "tape", "maps"]
"""What a method needs of a forward pass, and no more is done for it: answers to other inputs ("answers"), which models
without a gradient give, too; gradients at the input ("gradient"); the recorded operations ("tape"); these with a graph
that holds the attention maps, since rules go through them one by one ("maps")."""


@dataclass(frozen=True)
class RelevanceMaps:
    """What a method returns: relevance per token, and of the input and at the attention where it has them.

    `own_tokens` are the sizes of a layer's own axes of tokens, where scores are of these, not of the input's tokens.
    `convergence_delta` is what a map whose sum is promised misses that sum by, `[batch]`; see `Relevance`. `of_logit`
    says that relevance is a share of the explained logit, not of 1, say.
    """

    scores: Float[Tensor, "batch tokens"]
    input: Float[Tensor, " batch *places"] | None = None
    attention: tuple[Float[Tensor, "batch heads length length"], ...] | None = None
    convergence_delta: Float[Tensor, " batch"] | None = None
    of_logit: bool = False
    own_tokens: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Method:
    """A named way to attribute; see `register_method` for what is known of each."""

    name: str
    function: Callable[..., RelevanceMaps]
    class_specific: bool
    signed: bool
    differentiable: bool
    reaches_input: bool
    uses_rules: bool
    full_precision: bool
    needs: Needs
    source: str

    @cached_property
    def options(self) -> dict[str, object]:
        """Options with their defaults."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}

    def in_full_precision(self, options: Mapping[str, object]) -> bool:
        """Whether to record in float32 for a call with these options: nothing is known of the rules of a user's."""
        return self.full_precision or "composite" in options or (self.uses_rules and bool(custom_rules()))

    def keeps_maps(self, options: Mapping[str, object]) -> bool:
        """Whether a graph of a call with these options has to hold the attention maps; other rules may need them."""
        return self.needs == "maps" or (self.uses_rules and bool(options or custom_rules()))


_METHODS: dict[str, Method] = {}


@dataclass(frozen=True, eq=False)
class RegisteredMethod(Registration):
    """The handle of a registered method."""

    method: Method

    def remove(self) -> None:
        """Forget the method. Removing it twice does nothing."""
        if _METHODS.get(self.method.name) is self.method:
            del _METHODS[self.method.name]


def register_method(
    function: Callable[..., RelevanceMaps],
    *,
    class_specific: bool,
    signed: bool,
    source: str = "-",
    differentiable: bool = True,
    reaches_input: bool = False,
    uses_rules: bool = False,
    full_precision: bool | None = None,
    needs: Needs | None = None,
    name: str | None = None,
) -> RegisteredMethod:
    """Add a method that `attribute`, the callbacks and the command line then know.

    Examples:
        >>> import torch, lrptrain
        >>> def largest(explanation):
        ...     return lrptrain.RelevanceMaps(explanation.recording.inputs.abs())
        >>> with lrptrain.register_method(largest, class_specific=False, signed=False):
        ...     lrptrain.attribute(torch.nn.Linear(2, 2), torch.tensor([[1.0, -3.0]]), method="largest").scores
        tensor([[1., 3.]])

    Args:
        function: `function(explanation, **options) -> RelevanceMaps` with scores `[batch, tokens]`, without class
            tokens. An `Explanation` has the recorded forward pass, and gradients and relevance of the explained logit.
        class_specific: Whether the map depends on the target.
        signed: Whether scores may be negative.
        source: Paper.
        differentiable: Whether a loss on the scores reaches the model's parameters.
        reaches_input: Whether the maps have relevance of the input itself.
        uses_rules: Whether it propagates relevance by rules, so that a composite changes it.
        full_precision: Whether it needs float32 where the model runs in half precision. By default if it uses rules.
        needs: What it needs of a forward pass. By default "maps" if it uses rules, "tape" if not.
        name: The name of the method; that of the function by default.

    Returns:
        A handle with `remove()`, which is also a context manager.

    Raises:
        ValueError: If there is a method of that name.
    """
    name = name or function.__name__
    if name in _METHODS:
        raise ValueError(f"there is a method {name!r}: give the new one another name, or remove the old one first")
    entry = Method(
        name=name,
        function=function,
        class_specific=class_specific,
        signed=signed,
        differentiable=differentiable,
        reaches_input=reaches_input,
        uses_rules=uses_rules,
        full_precision=uses_rules if full_precision is None else full_precision,
        needs=needs or ("maps" if uses_rules else "tape"),
        source=source,
    )
    _METHODS[name] = entry
    return RegisteredMethod(entry)


MethodFunction = TypeVar("MethodFunction", bound=Callable[..., RelevanceMaps])


def method(**facts: Any) -> Callable[[MethodFunction], MethodFunction]:
    """Register the decorated function under its own name; `facts` are further arguments of `register_method`."""

    def register(function: MethodFunction) -> MethodFunction:
        register_method(function, **facts)
        return function

    return register


def methods() -> tuple[str, ...]:
    """The names of all methods that `attribute` knows.

    Examples:
        >>> import lrptrain
        >>> "attnlrp" in lrptrain.methods(), "gradcam" in lrptrain.methods()
        (True, True)
    """
    return tuple(sorted(_METHODS))


def differentiable() -> tuple[str, ...]:
    """The names of the methods that can be trained through."""
    return tuple(name for name in methods() if _METHODS[name].differentiable)


def get_method(name: str, options: Mapping[str, object]) -> Method:
    """Look a method up and check its options."""
    if name not in _METHODS:
        raise UnsupportedMethodError(unknown_name("method", name, methods()))
    chosen = _METHODS[name]
    accepted = chosen.options
    for option in sorted(set(options) - set(accepted)):
        if option == "composite" and not isinstance(options[option], str):
            _check_uses_rules(chosen)
        else:
            raise UnsupportedMethodError(unknown_name(f"option of {name}", option, tuple(accepted)))
    return chosen


def _check_uses_rules(chosen: Method) -> None:
    if not chosen.uses_rules:
        can = ", ".join(name for name in methods() if _METHODS[name].uses_rules)
        raise UnsupportedMethodError(f"{chosen.name} propagates no relevance by rules: a composite changes only {can}")


def check_maps(maps: object, name: str, samples: int, tokens: int | None, grid: tuple[int, ...] | None) -> None:
    """Reject what a method returned, if it is no map of the explained input."""
    if not isinstance(maps, RelevanceMaps):
        raise ValueError(f"the method {name!r} returned a {type(maps).__name__}: return lrptrain.RelevanceMaps(scores)")
    shape = list(maps.scores.shape)
    if len(shape) == 2 and shape[0] == samples and tokens in (None, shape[1]):
        return
    of_grid = "" if grid is None else f" (a grid of {' x '.join(map(str, grid))})"
    wanted = f"[{samples}, {'tokens' if tokens is None else tokens}]{of_grid}"
    hint = ""
    if tokens is not None and shape == [samples, tokens + 1]:
        hint = ": without the class token, RelevanceMaps(scores[:, 1:])"
    elif len(shape) > 2 and shape[0] == samples and tokens == math.prod(shape[1:]):
        hint = ": RelevanceMaps(scores.flatten(1))"
    raise ValueError(f"the method {name!r} returned scores {shape}, not {wanted}{hint}")


def check_finite(relevance: Relevance, leaf: Tensor) -> None:
    """Raise if a map holds NaN or infinity."""
    for field, maps in (
        ("scores", (relevance.scores,)),
        ("input", () if relevance.input is None else (relevance.input,)),
        ("attention", relevance.attention or ()),
    ):
        for values in maps:
            if not values.isfinite().all():
                raise NonFiniteError(_why_not_finite(relevance, leaf, field, _not_finite(values)))


def _not_finite(values: Float[Tensor, "batch ..."]) -> list[int]:
    return (~values.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()


def _why_not_finite(relevance: Relevance, leaf: Tensor, field: str, samples: list[int]) -> str:
    """The message, which names the nearest cause: the input, the explained logits, or the method itself."""
    what = f"{relevance.method}: the {field} are NaN or infinite in samples {samples[:10]}"
    if set(samples) & set(_not_finite(leaf)):
        return f"{what}, as is the input: replace such numbers in it"
    explained = [relevance.target] if relevance.other is None else [relevance.target, relevance.other]
    logits = torch.stack([relevance.logits.gather(1, classes[:, None])[:, 0] for classes in explained], 1)
    if set(samples) & set(_not_finite(logits)):
        return f"{what}, as are the explained logits: choose another target, or check the model's weights"
    return (
        f"{what}, though input and logits are not: run the model in float32 or float64, check its weights, or take "
        f"another method ({other_methods('generic_attention', 'input_x_gradient')} propagate no relevance)"
    )
