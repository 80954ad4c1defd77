"""Failures that must not end a training run: reported once, and counted."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from lrptrain.relevance.types import UnsupportedModelError
from lrptrain.terminal import give_warning


class Failures:
    """Counts failures, and warns of the first."""

    def __init__(self, on_error: Literal["warn", "raise"] = "warn", callback: str = "RelevanceMonitor") -> None:
        self.on_error = on_error
        self.callback = callback
        self.count = 0

    @contextmanager
    def caught(self, activity: str) -> Iterator[None]:
        """Catch the failures of what runs inside; `activity`, such as "writing files", goes into the warning."""
        try:
            yield
        except Exception as error:
            self.note(activity, error)

    def note(self, activity: str, error: Exception) -> None:
        """Count a failure. The exception is not kept: its frames may hold a whole graph."""
        self.count += 1
        if self.on_error == "raise":
            raise error
        if self.count == 1:
            # The last calls are where it failed; all of them would be Lightning's loops.
            frames = "".join(traceback.format_tb(error.__traceback__)[-3:])
            give_warning(
                f"{self.callback} failed while {activity}: {describe_error(error)}\n{frames}"
                "Training continues; this is logged once, and the value `failures` counts.",
            )


def is_of_the_model(error: Exception) -> bool:
    """Return whether an exception was raised by the code of a model, rather than as what it is refused with."""
    called_by = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    rooms = [name.partition(".")[0] for name in called_by]
    is_refusal = isinstance(error, ValueError) and rooms[-1] == "lrptrain"
    if isinstance(error, UnsupportedModelError) or is_refusal or "torch.nn.modules.module" not in called_by:
        return False
    return not {*rooms[called_by.index("torch.nn.modules.module") :]} <= {"torch", "lrptrain"}


def describe_error(error: Exception) -> str:
    """Return one line about an exception."""
    return f"{type(error).__name__}: {error}"
