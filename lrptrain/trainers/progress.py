"""How far a monitor is with its samples, as a bar among those that the trainer draws."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from lrptrain.terminal import is_screen

_TITLE = "Relevance"

Advance = Callable[[int], object]
"""Called with how many more samples are done."""
Progress = Callable[[int], AbstractContextManager[Advance]]
"""Shows a bar for so many samples, until the end of the block."""


@contextmanager
def no_bar(total: int) -> Iterator[Advance]:
    """Show nothing."""
    yield lambda count: None


@contextmanager
def tqdm_bar(total: int) -> Iterator[Advance]:
    """Show a bar below others of tqdm, which is gone when it is full."""
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=_TITLE, leave=False) as bar:
        yield bar.update


@contextmanager
def rich_bar(bars: Any, total: int) -> Iterator[Advance]:
    """Show a bar as one more row of a `rich.progress.Progress`, which knows where its rows are."""
    # Hidden afterwards, and used again: Lightning finds its own rows by their places in the list of all of them, so
    # that none may be removed.
    row = next((task.id for task in bars.tasks if task.description == _TITLE), None)
    if row is None:
        row = bars.add_task(_TITLE, total=total)
    else:
        bars.reset(row, total=total, visible=True)
    try:
        yield partial(bars.advance, row)
    finally:
        bars.update(row, visible=False)


def shows_progress() -> bool:
    """Return whether a bar is seen as one: on a terminal or in a notebook, not in a file."""
    return is_screen(sys.stderr) or "ipykernel" in sys.modules
