"""Pictures of an audit."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from lrptrain.extras import require

_INK, _SOFT, _RED, _GREEN = "#1f4e9c", "#b8b8b8", "#b5402a", "#3f7f4f"
MOST = float(np.log(2))
"""The largest Jensen-Shannon divergence."""
Point = tuple[float, float]


class Estimate(Protocol):
    """A mean with its interval."""

    @property
    def value(self) -> float: ...  # noqa: D102
    @property
    def low(self) -> float: ...  # noqa: D102
    @property
    def high(self) -> float: ...  # noqa: D102


def draw_gains(path: Path, gains: Mapping[str, Estimate]) -> None:
    """Bars of the gain over random orders with their 95 % intervals, the best on top.

    Raises:
        ImportError: Without matplotlib.
    """
    names = sorted(gains, key=lambda name: gains[name].value)
    values, low, high = (
        np.array([getattr(gains[name], part) for name in names], float) for part in ("value", "low", "high")
    )
    figure, axes = _figure(6.4, 1.1 + 0.3 * len(names))
    axes.barh(names, values, color=[_INK if end > 0 else _SOFT for end in low], height=0.6)
    axes.errorbar(values, range(len(names)), xerr=[values - low, high - values], fmt="none", ecolor="black", capsize=3)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("gain over random orders (95 % interval); blue: surely above 0")
    _finish(figure, axes, "Does the model follow the map?", path)


def draw_permutation(
    path: Path, largest_weight: Float[np.ndarray, " samples"], median_tvd: Float[np.ndarray, " samples"]
) -> None:
    """Shuffled attention: how far the output moves, against the largest weight.

    Raises:
        ImportError: Without matplotlib.
    """
    figure, axes = _figure(5.6, 4.0)
    axes.scatter(largest_weight, median_tvd, s=16, color=_INK, alpha=0.6, linewidths=0)
    edges = np.linspace(0, 1, 5)
    for low, high in pairwise(edges):
        inside = median_tvd[(largest_weight > low) & (largest_weight <= high)]
        if len(inside):
            axes.hlines(np.median(inside), low, high, color=_RED, linewidth=2)
    axes.plot([], [], color=_RED, linewidth=2, label="median of a quarter of the range")
    axes.legend(frameon=False, fontsize="small", loc="best")
    axes.set(xlabel="largest attention weight", ylabel="median TVD of the output over shuffles")
    axes.set(xlim=(0, 1), ylim=(-0.02, 1.02))
    _finish(figure, axes, "Last block's attention, shuffled", path)


def draw_differences(
    path: Path,
    method: str,
    adversaries: Mapping[float, Point],
    seeds: Sequence[Point] = (),
    uniform: Point | None = None,
) -> None:
    """Other models: how far their output and their maps are from the model's (Wiegreffe & Pinter 2019, figure 5).

    Args:
        path: Of the PNG.
        method: Whose maps.
        adversaries: Mean TVD and mean JSD by strength.
        seeds: Those of models of other seeds.
        uniform: Those of the model with uniform attention.

    Raises:
        ImportError: Without matplotlib.
    """
    figure, axes = _figure(5.6, 4.0)
    strengths = sorted(adversaries)
    jsd, tvd = ([adversaries[strength][part] for strength in strengths] for part in (1, 0))
    axes.plot(jsd, tvd, "-o", color=_INK, linewidth=1, markersize=5, label="adversaries, by strength")
    for strength, x, y in zip(strengths, jsd, tvd, strict=True):
        axes.annotate(f"{strength:g}", (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8, color=_INK)
    if seeds:
        axes.scatter([y for _, y in seeds], [x for x, _ in seeds], marker="^", s=30, color=_GREEN, label="other seeds")
    if uniform is not None:
        axes.scatter(uniform[1], uniform[0], marker="s", s=34, color=_RED, label="uniform attention")
    axes.axvline(MOST, color=_SOFT, linewidth=0.8, linestyle="--")
    axes.set(xlabel="mean JSD of the maps (dashed: the most there is)", ylabel="mean TVD of the outputs")
    highest = max([*tvd, *(x for x, _ in seeds), *((uniform[0],) if uniform else ())])
    axes.set(xlim=(-0.02, 0.74), ylim=(-0.04 * max(highest, 0.1), 1.15 * max(highest, 0.1)))
    axes.legend(frameon=False, fontsize="small", loc="best")
    _finish(figure, axes, f"{method}: other maps with the same output?", path)


def draw_agreement(path: Path, names: Sequence[str], matrix: Float[np.ndarray, "methods methods"]) -> None:
    """Mean rank correlations between methods as a heat map.

    Raises:
        ImportError: Without matplotlib.
    """
    side = 1.8 + 0.42 * len(names)
    figure, axes = _figure(side + 1.0, side)
    shown = axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    for row, values in enumerate(matrix):
        for column, value in enumerate(values):
            number = f"{round(value, 1) + 0.0:.1f}"  # + 0.0: no minus before a zero
            colour = "white" if abs(value) > 0.6 else "black"
            axes.text(column, row, number, ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(shown, label="rank correlation", shrink=0.8)
    _finish(figure, axes, "Do the methods agree?", path, grid=False)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    figure = require("matplotlib.figure", "monitor").Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _finish(figure: Any, axes: Any, title: str, path: Path, grid: bool = True) -> None:
    axes.set_title(title, loc="left", fontsize="medium")
    if grid:
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
