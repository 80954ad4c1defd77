"""Failures that must not end a training run: told once, counted, passed over."""

import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal


class Failures:
    """Counts failures and warns of the first.

    Args:
        on_error: "warn", or "raise" to pass every failure on.
        who: Says so, and what counts on.
    """

    def __init__(self, on_error: Literal["warn", "raise"] = "warn", who: str = "RelevanceMonitor") -> None:
        self.on_error = on_error
        self.who = who
        self.count = 0

    @contextmanager
    def caught(self, doing: str) -> Iterator[None]:
        """Do something that must not end the run."""
        try:
            yield
        except Exception as error:
            self.note(doing, error)

    def note(self, doing: str, error: Exception) -> None:
        """Count a failure; the exception, whose frames may hold a whole graph, is not kept."""
        self.count += 1
        if self.on_error == "raise":
            raise error
        if self.count == 1:
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            warnings.warn(
                f"{self.who} failed while {doing}: {described(error)}\n{where}"
                "Training goes on; this is said once, and the logged value `failures` counts.",
                stacklevel=2,
            )


def described(error: Exception) -> str:
    """One line about an exception."""
    return f"{type(error).__name__}: {error}"
