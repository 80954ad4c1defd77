"""From saved runs to tables: means with 95 % intervals over seeds."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.guidance.arms import CONTROLS, FULL, PLAIN, UPPER
from experiments.intervals import estimate
from experiments.parallel import Run
from experiments.table import markdown, mean_interval

WITHOUT = "accuracy without"
MAPS = ("EPG, generic_attention", "EPG, attnlrp")
COLUMNS = ("accuracy", WITHOUT, "worst group", "reliance, fill", "accuracy, fill", "reliance, swap", *MAPS)


def shown(values: Sequence[float], digits: int = 3) -> str:
    """Mean and half width."""
    mean, half = mean_interval(values)
    return f"{mean:.{digits}f}" if np.isnan(half) else f"{mean:.{digits}f} ± {half:.{digits}f}"


def held_to(differences: Sequence[float], least: float) -> str:
    """The mean of differences over seeds, its 95 % interval, and whether that reaches what is the least wanted.

    Met: all of the interval does. Missed: nothing of it does. Else it is open, which the seeds do not tell.
    """
    found = estimate([[each] for each in differences], same_samples=False)
    reached = "missed" if found.mean + found.half < least else "open"
    return f"{found.mean:+.3f} ± {found.half:.3f}: {'met' if found.mean - found.half >= least else reached}"


def of(runs: Sequence[Run], **wanted: object) -> list[Run]:
    """The runs of a table with these values, by seed."""
    mine = [run for run in runs if not run["choosing"] and all(run.get(name) == x for name, x in wanted.items())]
    return sorted(mine, key=lambda run: run["seed"])


def gap_closed(mine: Sequence[Run], plain: Sequence[Run], upper: Sequence[Run], column: str = WITHOUT) -> list[float]:
    """Per seed, what share of the way from plain training to the upper bound an arm goes."""
    by_seed = [{run["seed"]: run[column] for run in runs} for runs in (mine, plain, upper)]
    seeds = [seed for seed in by_seed[0] if all(seed in runs for runs in by_seed)]
    return [
        (by_seed[0][s] - by_seed[1][s]) / (by_seed[2][s] - by_seed[1][s])
        for s in seeds
        if by_seed[2][s] != by_seed[1][s]
    ]


def arms_table(runs: Sequence[Run], columns: Sequence[str], rules: Mapping[str, Mapping[str, float]]) -> str:
    """One row per arm and weight, with the share of the gap closed: controls first, then the best arms first.

    Args:
        runs: Of one setting.
        columns: Of the runs.
        rules: Weight by arm, by the rule that chose it.
    """
    plain, upper = of(runs, arm=PLAIN), of(runs, arm=UPPER)
    pairs = dict.fromkeys((run["arm"], run["weight"]) for run in runs if not run["choosing"])
    found = {pair: of(runs, arm=pair[0], weight=pair[1]) for pair in pairs}
    order = [pair for pair in found if pair[0] in CONTROLS]
    guided = [pair for pair in found if pair[0] not in CONTROLS]
    order += sorted(guided, key=lambda pair: -float(np.mean([run[WITHOUT] for run in found[pair]])))
    rows = []
    for arm, weight in order:
        mine = found[arm, weight]
        chosen = [name for name, own in rules.items() if own.get(arm.removesuffix(FULL)) == weight]
        row = {"arm": arm, "weight": f"{weight:g} ({', '.join(chosen)})" if weight else ""}
        row |= {"steps": f"{mine[0]['steps']:g}", **{name: shown([run[name] for run in mine]) for name in columns}}
        row["gap closed"] = "" if arm in (PLAIN, UPPER) else shown(gap_closed(mine, plain, upper), 2)
        rows.append(row)
    return markdown(rows)


def settings_table(runs: Sequence[Run], settings: Sequence[Mapping[str, object]]) -> str:
    """Accuracy without the shortcut, one row per setting, over the seeds that all arms have."""
    rows: list[dict[str, str]] = []
    for setting in settings:
        arms = dict.fromkeys((run["arm"], run["weight"]) for run in of(runs, **setting))
        mine = {arm: of(runs, arm=arm[0], weight=arm[1], **setting) for arm in arms}
        if len(mine) < 2:
            continue
        row = {name: str(value) for name, value in setting.items()}
        row["seeds"] = str(min(map(len, mine.values())))
        row |= {f"{arm[0]} {arm[1] or ''}".strip(): shown([run[WITHOUT] for run in own]) for arm, own in mine.items()}
        rows.append(row)
    return markdown(rows) if rows else "(not run yet)"


def choosing_table(runs: Sequence[Run]) -> str:
    """What the weights were chosen by: accuracy, reliance and accuracy under the fill, on validation data."""
    rows = []
    for arm in dict.fromkeys(run["arm"] for run in runs if run["choosing"]):
        mine = sorted((run for run in runs if run["choosing"] and run["arm"] == arm), key=lambda run: run["weight"])
        cells = dict.fromkeys(("low weight", "middle", "high"), "")
        for place, run in zip(cells, mine, strict=False):
            measured = (run["accuracy"], run["reliance, fill"], run["accuracy, fill"])
            cells[place] = f"{run['weight']:g}: " + " / ".join(f"{x:.3f}" for x in measured)
        rows.append({"arm": arm, **cells})
    return markdown(rows)
