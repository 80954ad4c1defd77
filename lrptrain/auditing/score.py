"""A mean over samples with its 95 % interval, how tables and sentences write it, and their Markdown as HTML."""

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lrptrain.metrics.interval import mean_with_interval, moments_by_row

_STYLE = "font:14px/1.45 system-ui,sans-serif;color:#111;background:#fff;padding:8px"
_CELL = "padding:3px 10px;border-bottom:1px solid #ddd;text-align:left;white-space:nowrap"


@dataclass(frozen=True)
class Score:
    """A mean over samples with its 95 % interval.

    Attributes:
        value: The mean; nan without samples.
        low: Lower end of the interval; nan below two samples.
        high: Upper end of the interval; nan below two samples.
        samples: How many samples had a value.
    """

    value: float
    low: float
    high: float
    samples: int

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def summarize(values: Sequence[float]) -> Score:
    """Return the mean of the values with its 95 % t interval; nan values are left out."""
    column = torch.tensor(values, dtype=torch.float64)
    row = torch.zeros(len(column), dtype=torch.long)  # all values belong to one mean
    estimate = mean_with_interval(moments_by_row(column, row, 1))
    value, low, high = (float(estimate[name][0]) for name in ("value", "low", "high"))
    return Score(value, low, high, samples=int((~column.isnan()).sum()))


def is_known(score: Score | None) -> bool:
    """Whether there is a mean at all."""
    return score is not None and not math.isnan(score.value)


def table_cell(score: Score | None) -> str:
    """Return the mean and its interval; "-" if unknown."""
    if score is None or not is_known(score):
        return "-"
    interval = "" if math.isnan(score.low) else f" [{_two_digits(score.low)}, {_two_digits(score.high)}]"
    return f"{score.value:.3f}{interval}"


def _two_digits(number: float) -> str:
    return f"{round(number, 2) + 0.0:.2f}"  # + 0.0: no minus before a zero


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as Markdown with aligned columns; the first line is the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *rows = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
    return "\n".join([head, "| " + " | ".join("-" * width for width in widths) + " |", *rows])


def markdown_html(text: str) -> str:
    """Return tables, lists and paragraphs, parted by empty lines, as a block of HTML; all text in it is escaped."""
    blocks = "".join(_block(block) for block in text.strip().split("\n\n"))
    return f'<div style="{_STYLE}">{blocks}</div>'


def _block(block: str) -> str:
    lines = block.splitlines()
    if block.startswith("| "):
        head, _, *rows = lines  # the second line is of dashes
        body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
        table = f"<tr>{_cells(head, 'th')}</tr>{body}"
        return (
            f'<div style="overflow-x:auto"><table style="border-collapse:collapse;font:inherit">{table}</table></div>'
        )
    if all(line.startswith("- ") for line in lines):
        return f"<ul>{''.join(f'<li>{_inline(line[2:])}</li>' for line in lines)}</ul>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _cells(line: str, tag: str) -> str:
    # A bar within a cell is escaped.
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return "".join(f'<{tag} style="{_CELL}">{_inline(cell.strip())}</{tag}>' for cell in cells)


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text.replace("\\|", "|"), quote=False))
