"""An audit as a table, in plain sentences, as files and as pictures."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from lrptrain.audit.comparison import Score
from lrptrain.audit.in_words import sentences
from lrptrain.audit.result import AuditResult
from lrptrain.audit.table import aligned, cell
from lrptrain.audit.training_tests import read_wish
from lrptrain.audit.verdict import LEVELS, summary
from lrptrain.files import write_json
from lrptrain.render.audit import draw_agreement, draw_differences, draw_gains, draw_permutation

COLUMNS = {
    "gain over random ↑": ("perturbation", "gain"),
    "tau, leave-one-out ↑": ("leave_one_out", "tau"),
    "lost weights ↓": ("randomisation", "left"),
    "tau, gradient": ("gradient", "tau"),
    "in a token-wise model ↑": ("frozen", "right"),
}
"""What the table shows of every method: test and value by the head of the column."""


def table(result: AuditResult) -> str:
    """A row per method as aligned Markdown: the verdict and the numbers behind it, the best first."""
    shown = [head for head, (test, _) in COLUMNS.items() if any(result.values(test, own) for own in result.methods)]
    rows = [
        [each.method, each.faithful, *(cell(score_of(result, each.method, head), 0) for head in shown)]
        for each in sorted(result.verdicts, key=lambda each: _place(result, each.method, each.faithful))
    ]
    return aligned([["method", "faithful", *shown], *rows])


def score_of(result: AuditResult, method: str, head: str) -> Score | None:
    """A column's mean over samples with its 95 % t interval; None if it was not measured."""
    test, value = COLUMNS[head]
    values = result.values(test, method)
    return summary(values[value]) if values else None


def markdown(result: AuditResult) -> str:
    """Everything in words: what was audited, the table, the verdicts, what is said of attention, what was left out."""
    about = result.about
    accuracy = "" if math.isnan(about["accuracy"]) else f", {about['accuracy']:.0%} of them read right"
    parts = [
        f"{about['samples']} samples{accuracy}; explained is the predicted class. Mean [95 % interval over samples]; "
        "↑ more is better, ↓ less is.",
        table(result),
        "Verdicts:\n\n" + _bullets(str(verdict) for verdict in result.verdicts),
    ]
    said = sentences(result)
    if said:
        parts.append("What models and attention say:\n\n" + _bullets(said))
    if result.notes:
        parts.append("Note:\n\n" + _bullets(result.notes))
    if left_out := _left_out(result):
        parts.append("Left out:\n\n" + _bullets(left_out))
    return "\n\n".join(parts) + "\n"


def write(result: AuditResult, folder: Path) -> None:
    """Save `audit.md`, `results.json`, and a picture of whatever was measured.

    Raises:
        ImportError: Without matplotlib.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audit.md").write_text(markdown(result), encoding="utf-8")
    write_json(folder / "results.json", {**asdict(result), "sentences": sentences(result)})
    draw(result, folder)


def draw(result: AuditResult, folder: Path) -> None:
    """A PNG per test that has one and was run."""
    gains = {own: score for own in result.methods if (score := score_of(result, own, "gain over random ↑"))}
    if gains:
        draw_gains(folder / "gains.png", gains)
    if agreement := result.values("agreement"):
        draw_agreement(folder / "agreement.png", agreement["methods"], np.array(agreement["matrix"]))
    if shuffled := result.values("permutation"):
        columns = (np.array(shuffled[name]) for name in ("largest_weight", "median_tvd"))
        draw_permutation(folder / "permutation.png", *columns)
    for method, adversaries in differences(result).items():
        draw_differences(folder / f"adversary_{method}.png", method, adversaries, *_beside(result, method))


def differences(result: AuditResult) -> dict[str, dict[float, tuple[float, float]]]:
    """Of every method with adversaries, by their strength: mean TVD of the outputs and mean JSD of the maps."""
    found: dict[str, dict[float, tuple[float, float]]] = {}
    for unit in result.units:
        if unit.test == "adversary" and unit.values:
            method, strength = read_wish(unit.of)
            found.setdefault(method, {})[strength] = _means(unit.values["tvd"], unit.values["jsd"])
    return found


def _beside(result: AuditResult, method: str) -> tuple[list[tuple[float, float]], tuple[float, float] | None]:
    """Other seeds, and the model with uniform attention, on the same plot."""
    models = [unit.values for unit in result.units if unit.test == "seeds" and unit.values]
    seeds = [_means(values["tvd"], values["jsd"][method]) for values in models if method in values["jsd"]]
    uniform = result.values("uniform")
    return seeds, _means(uniform["tvd"], uniform["jsd"]) if uniform and method == "raw_attention" else None


def _means(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    return float(np.nanmean(first)), float(np.nanmean(second))


def _place(result: AuditResult, method: str, faithful: str) -> tuple[float, float]:
    level = LEVELS[faithful]  # type: ignore[index]
    gain = score_of(result, method, "gain over random ↑")
    return (math.inf if math.isnan(level) else -level), (-gain.value if gain else math.inf)


def _left_out(result: AuditResult) -> list[str]:
    """The units without values, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for unit in result.units:
        if unit.problem:
            reasons.setdefault(unit.problem, []).append(unit.title)
    return [f"{', '.join(units)}: {why}" for why, units in reasons.items()]


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)
