"""From saved runs to tables: means with 95 % intervals over seeds."""

from collections.abc import Mapping, Sequence

import numpy as np
from arms import COMBINED, PLAIN, UPPER
from results import Run
from table import markdown, mean_interval

WITHOUT = "accuracy without"
COLUMNS = ("accuracy", WITHOUT, "worst group", "reliance, fill", "reliance, swap")
MAPS = ("EPG, generic_attention", "EPG, attnlrp")


def shown(values: Sequence[float], digits: int = 3) -> str:
    """Mean and half width."""
    mean, half = mean_interval(values)
    return f"{mean:.{digits}f}" if np.isnan(half) else f"{mean:.{digits}f} ± {half:.{digits}f}"


def of(runs: Sequence[Run], **wanted: object) -> list[Run]:
    """The runs of a table with these values, by seed."""
    mine = [run for run in runs if not run["choosing"] and all(run.get(name) == x for name, x in wanted.items())]
    return sorted(mine, key=lambda run: run["seed"])


def gap_closed(mine: Sequence[Run], plain: Sequence[Run], upper: Sequence[Run], column: str = WITHOUT) -> list[float]:
    """Per seed, what share of the way from plain training to the upper bound an arm goes."""
    by_seed = [{run["seed"]: run[column] for run in runs} for runs in (mine, plain, upper)]
    seeds = [seed for seed in by_seed[0] if all(seed in runs for runs in by_seed)]
    return [
        (by_seed[0][s] - by_seed[1][s]) / (by_seed[2][s] - by_seed[1][s]) for s in seeds if by_seed[2][s] != by_seed[1][s]
    ]


def arms_table(
    runs: Sequence[Run], arms: Sequence[str], names: Mapping[str, str], columns: Sequence[str], upper: bool = True
) -> str:
    """One row per arm; the share of the gap closed where there is an upper bound."""
    plain, best = of(runs, arm=PLAIN), of(runs, arm=UPPER)
    rows = []
    for arm in arms:
        mine = of(runs, arm=arm)
        if not mine:
            continue
        weight = mine[0]["weight"]
        row = {"arm": names.get(arm, arm), "weight": f"{weight:g}" if weight else "", "steps": f"{mine[0]['steps']:g}"}
        row |= {column: shown([run[column] for run in mine]) for column in columns}
        if upper:
            row["gap closed"] = "" if arm in (PLAIN, UPPER) else shown(gap_closed(mine, plain, best), 2)
        rows.append(row)
    return markdown(rows)


def combined_name(best: str) -> dict[str, str]:
    """What the combined arm is called in tables."""
    return {COMBINED: f"consistency + {best}"}


def settings_table(
    runs: Sequence[Run], settings: Sequence[Mapping[str, object]], arms: Sequence[str], names: Mapping[str, str]
) -> str:
    """Accuracy without the shortcut, one row per setting."""
    rows = []
    for setting in settings:
        mine = {arm: of(runs, arm=arm, **setting) for arm in arms}
        if not all(mine.values()):
            continue
        row = {name: str(value) for name, value in setting.items()}
        row["seeds"] = str(min(map(len, mine.values())))
        row |= {names.get(arm, arm): shown([run[WITHOUT] for run in own]) for arm, own in mine.items()}
        rows.append(row)
    return markdown(rows) if rows else ""


def choosing_table(runs: Sequence[Run], arms: Sequence[str], names: Mapping[str, str]) -> str:
    """What the weights were chosen by, on the validation split with the shortcut: accuracy / reliance, fill."""
    rows = []
    for arm in arms:
        mine = sorted((run for run in runs if run["choosing"] and run["arm"] == arm), key=lambda run: run["weight"])
        cells = [f"{run['weight']:g}: {run['accuracy']:.3f} / {run['reliance, fill']:.3f}" for run in mine]
        rows.append({"arm": names.get(arm, arm), "weight: accuracy / reliance": "; ".join(cells)})
    return markdown(rows)
