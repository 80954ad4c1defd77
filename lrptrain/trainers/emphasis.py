"""Weight and colour for what is said on a terminal, and only there."""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from lrptrain.terminal import fitted, is_terminal

_RED = "\x1b[1;31m"
_YELLOW = "\x1b[1;33m"
_GREEN = "\x1b[1;32m"
_BOLD = "\x1b[1m"
_END = "\x1b[0m"
# Verdicts, as `lrptrain.findings.sentences` and `lrptrain.monitor.power` word them.
_WORDS = (
    (re.compile(r"\bSHORTCUT(?=:)"), _RED),
    (re.compile(r"\bCOLLAPSED\b"), _RED),
    (re.compile(r"\bNEEDS REVIEW(?=:)"), _BOLD),
    # At the beginning, or behind the name of the monitor.
    (re.compile(r"^[Nn]ot sure\b|(?<=: )not sure\b|\bnot sure of \d+", re.MULTILINE), _YELLOW),
    (re.compile(r"\bno verdict\b"), _YELLOW),
    (re.compile(r"\b0 shortcuts(?=\.)"), _GREEN),
    (re.compile(r"^  (?:See|Fix)(?=[: ])", re.MULTILINE), _BOLD),
)


def emphasised(text: str) -> str:
    """Return a text with its verdicts in colour."""
    for pattern, colour in _WORDS:
        text = pattern.sub(rf"{colour}\g<0>{_END}", text)
    return text


@contextmanager
def spoken_by(logger: logging.Logger) -> Iterator[None]:
    """Let what a logger says reach a terminal on which bars are drawn, as lines above them.

    Rich redraws its bars from where it thinks the cursor is, and takes what others write there with it, but for what is
    written through the streams that it has put in the place of the terminal's. A bar of tqdm leaves the cursor behind
    it, and further bars below: all of them are wiped, and drawn anew below what is said.

    Args:
        logger: The logger, of whose handlers those for a terminal are led around the bars.
    """
    moved: list[tuple[logging.StreamHandler[Any], Any]] = []
    for handler in _handlers(logger):
        stream = getattr(handler, "stream", None)
        # A file that its first line opens has no stream before.
        if not isinstance(handler, logging.StreamHandler) or stream is None:
            continue
        proxies = (each for each in (sys.stderr, sys.stdout) if getattr(each, "rich_proxied_file", None) is stream)
        proxy = next(proxies, None)
        if proxy is not None:
            handler.setStream(proxy)
            moved.append((handler, stream))
        elif is_terminal(stream):
            # To the first column, and what is on the screen from there on is wiped.
            stream.write("\r\x1b[J")
    try:
        yield
    finally:
        for handler, stream in moved:
            handler.setStream(stream)


def for_stream(text: str, stream: TextIO) -> str:
    """Return a text as it is written to a stream: with its verdicts in colour, where that is shown as such."""
    return emphasised(text) if shows_colour(stream) else text


def for_logger(text: str, logger: logging.Logger) -> str:
    """Return a text as it is logged: in lines and colours if everything that hears of it shows them as such.

    A file that logs the same would hold the codes of the colours, and a search of it would miss what a line breaks: so
    nothing is coloured or broken then.
    """
    streams = [getattr(handler, "stream", None) for handler in _handlers(logger)]
    # Without any handler, Python's last resort is the terminal for warnings alone.
    lines = fitted(text) if streams and all(map(is_terminal, streams)) else text
    return emphasised(lines) if streams and all(each is not None and shows_colour(each) for each in streams) else lines


def shows_colour(stream: TextIO) -> bool:
    """Return whether a stream is a terminal with colours, or the user wants them; see no-color.org, force-color.org."""
    if os.environ.get("NO_COLOR"):
        return False
    # A file of a log stays plain even where colours are forced upon what would be a terminal.
    if os.environ.get("FORCE_COLOR"):
        return is_terminal(stream) or stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    # A notebook's stream is no terminal: it says so itself.
    return is_terminal(stream)


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers that a message of a logger reaches."""
    each: logging.Logger | None = logger
    while each is not None:
        yield from each.handlers
        each = each.parent if each.propagate else None
