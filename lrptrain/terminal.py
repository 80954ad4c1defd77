"""What is said on a terminal: lines of at most 80 columns, broken between words."""

import logging
import os
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

WIDTH = 80
"""The columns of a terminal."""


class WrappedWarning(UserWarning):
    """A warning whose message is broken into lines where it is shown on a terminal.

    `str` of it stays one line: filters and logs go by that.
    """

    def __format__(self, format_spec: str) -> str:
        """Return the message as Python, Lightning and pytest put it behind the path and the line of a warning."""
        message = super().__format__(format_spec)
        # Below the path, whose length is not known here.
        return f"\n{fitted(f'  {message}')}" if is_terminal(sys.stderr) else message


MAY_RAISE = False
"""Whether a program that makes errors of warnings gets one for those that are said amid a training: in tests alone."""


@contextmanager
def harmless(message: str) -> Iterator[None]:
    """Log a warning where the program makes an error of it: what is said to a user must not end a training."""
    try:
        yield
    except Warning:
        if MAY_RAISE:
            raise
        logging.getLogger("lrptrain").warning(message)


def give_warning(message: str) -> None:
    """Warn the user amid a training, which continues whatever the program does with warnings."""
    with harmless(message):
        warnings.warn(message, WrappedWarning, stacklevel=5)


@contextmanager
def no_errors_of(category: type[Warning]) -> Iterator[None]:
    """Show warnings of a category inside of which the program would make errors."""
    general = (filter for filter in warnings.filters if filter[1] is None and issubclass(category, filter[2]))
    action = next((filter[0] for filter in general), "default")
    if action != "error" or MAY_RAISE:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("default", category)
        yield


def fitted(message: str) -> str:
    """Return a message in lines that fit a terminal; one of several lines has a layout of its own, and keeps it."""
    if "\n" in message:
        return message
    # A path or a command that is longer than a line is there to be copied: it is never broken. A number and its percent
    # sign stay on one line.
    whole = message.replace(" %", "\xa0%")
    broken = textwrap.fill(whole, WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    return broken.replace("\xa0", " ")


def fitted_to(stream: TextIO, message: str) -> str:
    """Return a message as it is written to a stream: in lines where that is a terminal."""
    return fitted(message) if is_terminal(stream) else message


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal that moves its cursor and has colours."""
    return is_screen(stream) and os.environ.get("TERM") != "dumb"


def is_screen(stream: TextIO | None) -> bool:
    """Return whether what is written to a stream is seen by someone.

    A program without a console has no streams, one that is closed raises, and a class of the user's that writes to a
    file beside the terminal need not know `isatty`: none of them may end a run.
    """
    isatty = getattr(stream, "isatty", None)
    return isatty is not None and not getattr(stream, "closed", False) and bool(isatty())
