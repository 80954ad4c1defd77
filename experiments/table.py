"""What the experiments share: means with intervals, and Markdown tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

START, END = "<!-- table -->", "<!-- end of table -->"


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Mean over seeds and the half width of its t interval."""
    array = np.asarray(values, float)
    if len(array) < 2:
        return float(array.mean()), float("nan")
    half = stats.t.ppf((1 + confidence) / 2, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array))
    return float(array.mean()), float(half)


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """A table with the keys of the first row as its head."""
    if not rows:
        return "Nothing is measured yet."
    head = list(rows[0])
    lines = [head, ["---"] * len(head), *([row[name] for name in head] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_between(path: Path, text: str, start: str = START, end: str = END) -> None:
    """Replace what stands between the table's marks in a README."""
    before, _, rest = path.read_text(encoding="utf-8").partition(start)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", encoding="utf-8")
