"""Put a function in the place of a module's method, for a time."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def wrap_method(owner: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    """Let calls of a method go through another function.

    Args:
        owner: The object; its class is left alone.
        name: Of the method.
        around: Is given the method, its positional and its keyword arguments. The signature stays that of the method.

    Returns:
        What undoes it.
    """
    own, shadowed = getattr(owner, name), vars(owner).get(name)

    @wraps(own)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(own, args, kwargs)

    def unwrap() -> None:
        vars(owner).pop(name, None)
        if shadowed is not None:
            setattr(owner, name, shadowed)

    setattr(owner, name, wrapped)
    return unwrap
