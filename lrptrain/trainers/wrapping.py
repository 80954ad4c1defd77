"""Replace a method of one object, for a time."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def wrap_method(instance: Any, name: str, wrapper: Callable[..., Any]) -> Callable[[], None]:
    """Let calls of an object's method go through another function.

    Args:
        instance: The object; its class is left alone.
        name: The name of the method.
        wrapper: `wrapper(method, args, kwargs)` is called in its place. The signature stays that of the method.

    Returns:
        A function that undoes it, and restores an attribute of the object that had the method's name.
    """
    # The wrapper becomes an attribute of the object, which Python finds before the method of the class.
    method = getattr(instance, name)
    shadowed = vars(instance).get(name)

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(method, args, kwargs)

    def unwrap() -> None:
        vars(instance).pop(name, None)
        if shadowed is not None:
            setattr(instance, name, shadowed)

    setattr(instance, name, wrapped)
    return unwrap
