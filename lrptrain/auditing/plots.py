"""The frame that plots share; what is drawn in it stands beside each test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lrptrain.extras import require

BLUE = "#1f4e9c"
GREY = "#b8b8b8"


@contextmanager
def saved_plot(
    path: Path, title: str, width: float = 5.6, height: float = 4.0, grid: bool = True
) -> Iterator[tuple[Any, Any]]:
    """Draw a plot and save it as PNG when the context ends."""
    # A figure of its own, not pyplot's: no global state, and no window system.
    figure = require("matplotlib.figure", "audit").Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    yield figure, axes
    axes.set_title(title, loc="left", fontsize="medium")
    if grid:
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
