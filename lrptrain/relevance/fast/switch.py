"""One switch for all second implementations: with `LRPTRAIN_PLAIN=1` the plain ones run that they are held against."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

VARIABLE = "LRPTRAIN_PLAIN"
"""The environment variable: read once, when the engine is imported."""
_plain: ContextVar[bool] = ContextVar("plain", default=os.environ.get(VARIABLE, "").lower() not in ("", "0", "false"))


def is_plain() -> bool:
    """Return whether plain implementations run in the place of fast ones."""
    return _plain.get()


@contextmanager
def plainly() -> Iterator[None]:
    """Run the plain implementations inside."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def instead_of(plain: Callable[P, T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator for a fast function that takes the place of a plain one, with the same arguments."""

    def decorated(fast: Callable[P, T]) -> Callable[P, T]:
        @wraps(fast)
        def chosen(*args: P.args, **kwargs: P.kwargs) -> T:
            return plain(*args, **kwargs) if _plain.get() else fast(*args, **kwargs)

        return chosen

    return decorated
