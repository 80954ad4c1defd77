"""The method that is taken where none is named, and what takes its place where it cannot serve a model."""

import re
from collections.abc import Callable, Mapping, Sequence
from textwrap import shorten

from torch import nn

from lrptrain.relevance.notices import warn_once
from lrptrain.relevance.registry import get_method
from lrptrain.relevance.types import (
    Relevance,
    UnsupportedMethodError,
    UnsupportedModelError,
    UnsupportedOperationError,
)

DEFAULT_METHODS = ("attnlrp", "generic_attention", "integrated_gradients", "input_x_gradient")
"""The default method of maps, and those that take its place, the next where all before it cannot serve a model.

The last two need neither rules nor attention. The first of them runs a model 32 times; the second names the shortcut of
one image model of eight (experiments/default_method), and is the last resort."""
GUIDANCE_METHODS = ("generic_attention", "attnlrp", "input_x_gradient")
"""The same for maps that a loss is made of, in each training step."""
UNSUPPORTED = (UnsupportedOperationError, UnsupportedModelError, UnsupportedMethodError)
"""What a method raises if it cannot serve a model. Other errors are of the inputs, and of no method."""
_LONGEST_REASON = 160


def check_method(
    method: str | None, options: Mapping[str, object], defaults: Sequence[str] = DEFAULT_METHODS
) -> tuple[str, ...]:
    """Return the names of the methods to try, in their order: the one that is named, or all defaults.

    Options are those of the first default; defaults behind it that do not take them are left out. A name or an option
    that does not exist raises.
    """
    if method is not None and not isinstance(method, str):
        raise TypeError(
            f"method must be a name, not {method!r} (lrptrain.attribute takes a list of names, too); other maps of one "
            "forward pass are recording = lrptrain.record(model, inputs), then recording.attribute(target, name)"
        )
    if method is not None:
        return (get_method(method, options).name,)
    get_method(defaults[0], options)
    return tuple(name for name in defaults if _takes(name, options))


def _takes(name: str, options: Mapping[str, object]) -> bool:
    try:
        get_method(name, options)
    except UnsupportedMethodError:
        return False
    return True


def first_that_serves(
    model: nn.Module, names: Sequence[str], compute: Callable[[str], Relevance], *, create_graph: bool = False
) -> Relevance:
    """Return the map of the first method that serves a model; if it is not the very first, say so once per model.

    Errors of a method alone are passed on as they are. If none serves, the error of the first is raised, with those of
    the others. With `create_graph`, methods that cannot be trained through are left out.
    """
    if create_graph and len(names) > 1:
        names = [name for name in names if get_method(name, {}).differentiable]
    errors: dict[str, Exception] = {}
    for name in names:
        try:
            relevance = compute(name)
        except UNSUPPORTED as error:
            if len(names) == 1:
                raise
            errors[name] = error
            continue
        if errors:
            reasons = "; ".join(f"{failed}: {_in_few_words(error)}" for failed, error in errors.items())
            message = (
                f"the default method cannot serve {type(model).__name__} ({reasons}): {name} is used in its place; "
                f"pass method={name!r}, or another, to choose it yourself"
            )
            warn_once(model, ("default method", name), message)
        return relevance
    raise _of_all(errors)


def _of_all(errors: Mapping[str, Exception]) -> Exception:
    """The error of the first method, which also says why no other took its place."""
    first, *others = errors.values()
    # All fail alike if it is the model, not the method: once is enough.
    different = {name: error for name, error in list(errors.items())[1:] if str(error) != str(first)}
    if not others or not different:
        return first
    reasons = "; ".join(f"{name}: {_in_few_words(error)}" for name, error in different.items())
    return type(first)(f"{first} (nor can those that take its place where no method is named: {reasons})")


def _in_few_words(error: Exception) -> str:
    """The first part of a message, on one line; what to do comes behind it."""
    return shorten(re.split(r": |; |\. ", str(error))[0], _LONGEST_REASON, placeholder=" ...")
