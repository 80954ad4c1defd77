"""A comparison of methods as a table."""

import math
from collections.abc import Sequence

from lrptrain.audit.comparison import METRICS, Row, Score

# By what the model does rather than by where people look, where both are known.
ORDER = ("positive AUC", "comprehensiveness", *METRICS)


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned Markdown, the most faithful first; behind them the methods without scores, and why."""
    shown = [name for name in METRICS if any(_known(row.scores.get(name)) for row in rows)]
    scored = [row for row in rows if not row.problem]
    samples = max((score.samples for row in scored for score in row.scores.values()), default=0)
    by = next((name for name in ORDER if name in shown), None)
    if by is not None:
        scored.sort(key=lambda row: _badness(by, row))
    head = ["method", "class", *(f"{name} {'↑' if METRICS[name] else '↓'}" for name in shown), "cost"]
    lines = [
        [
            row.method,
            "yes" if row.class_specific else "no",
            *(cell(row.scores.get(name), samples) for name in shown),
            f"{row.cost:.2f}",
        ]
        for row in scored
    ]
    parts = [aligned([head, *lines]), _legend(scored, shown)] if scored else []
    problems = [[row.method, " ".join(row.problem.split()).replace("|", "\\|")] for row in rows if row.problem]
    if problems:
        parts.append("Not possible here:\n\n" + "\n".join(f"- `{name}`: {why}" for name, why in problems))
    return "\n\n".join(parts)


def _legend(rows: Sequence[Row], shown: Sequence[str]) -> str:
    chance = [row.scores["EPG"].chance for row in rows if "EPG" in row.scores and _known(row.scores["EPG"])]
    said = f"Chance level of EPG, the annotated share of the area: {chance[0]:.3f}. " if "EPG" in shown else ""
    faithful = "EPG" in shown and len(shown) > 3
    return (
        f"Mean [95 % interval over samples]; ↑ more is better, ↓ less is. class: whether the map depends on the class. "
        f"cost: time by that of one forward and backward pass of the same batch. {said}"
        + ("Where the model itself looks beside the annotation, a faithful map scores low on it." if faithful else "")
    ).rstrip()


def _badness(name: str, row: Row) -> float:
    score = row.scores.get(name)
    if score is None or not _known(score):
        return math.inf
    return -score.value if METRICS[name] else score.value


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as Markdown, the first as the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *rest = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
    return "\n".join([head, "| " + " | ".join("-" * width for width in widths) + " |", *rest])


def cell(score: Score | None, samples: int) -> str:
    """Mean and interval, and of how many samples if not of all."""
    if score is None or not _known(score):
        return "-"
    interval = "" if math.isnan(score.low) else f" [{_short(score.low)}, {_short(score.high)}]"
    return f"{score.value:.3f}{interval}" + (f" n={score.samples}" if score.samples < samples else "")


def _short(number: float) -> str:
    return f"{round(number, 2) + 0.0:.2f}"  # + 0.0: no minus before a zero


def _known(score: Score | None) -> bool:
    return score is not None and not math.isnan(score.value)
