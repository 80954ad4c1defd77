"""What is said to the user, in the first process alone and around bars of progress."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lrptrain.terminal import fitted, give_warning, is_terminal
from lrptrain.trainers.processes import rank_and_size

logger = logging.getLogger("lrptrain")
# What torchrun and SLURM tell a process of its number, before torch's processes have found each other.
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


def is_first_process() -> bool:
    """Return whether this process is the one that writes and speaks."""
    rank, size = rank_and_size()
    if size > 1:
        return rank == 0
    return next((int(os.environ[name]) == 0 for name in _RANKS if os.environ.get(name, "").isdecimal()), True)


def inform(message: str) -> None:
    """Say something, on the terminal unless the program has set logging up otherwise."""
    if not is_first_process():
        return
    # Python's logging shows no INFO where nobody has set it up; whoever has decides what becomes of it.
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False
    text = for_logger(message, logger)
    with spoken_by(logger):
        logger.info(text)


def warn(message: str) -> None:
    """Warn the user."""
    if is_first_process():
        give_warning(message)


@contextmanager
def spoken_by(logger: logging.Logger) -> Iterator[None]:
    """Let what a logger says reach a terminal on which bars are drawn, as lines above them.

    Rich redraws its bars from where it thinks the cursor is, and takes what others write there with it, but for what is
    written through the streams that it has put in the place of the terminal's. A bar of tqdm leaves the cursor behind
    it, and further bars below: all of them are wiped, and drawn anew below what is said. In a file, where nothing is
    wiped, a line begins behind the bar.
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
        elif _has_bar(stream):
            stream.write("\n")
    try:
        yield
    finally:
        for handler, stream in moved:
            handler.setStream(stream)


def _has_bar(stream: Any) -> bool:
    """Return whether a bar of tqdm is drawn on a stream; one that `disable` turned off has none."""
    bars = getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", ())
    files = [getattr(bar, "fp", None) for bar in list(bars) if not bar.disable]
    return any(getattr(file, "_wrapped", file) is stream for file in files)


def for_logger(text: str, logger: logging.Logger) -> str:
    """Return a text as it is logged: in lines if all that it reaches are terminals, as a search of a file misses them.

    Without any handler, Python's last resort is the terminal for warnings alone.
    """
    streams = [getattr(handler, "stream", None) for handler in _handlers(logger)]
    return fitted(text) if streams and all(map(is_terminal, streams)) else text


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers that a message of a logger reaches."""
    each: logging.Logger | None = logger
    while each is not None:
        yield from each.handlers
        each = each.parent if each.propagate else None
