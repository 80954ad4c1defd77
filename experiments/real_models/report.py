"""The tables of saved runs: maps of models, and arms of trainings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.intervals import estimate, paired, signed, starred
from experiments.real_models.maps import METHODS
from experiments.real_models.measured import Measure, Run
from experiments.table import markdown, mean_interval

MEASURES = ("faithfulness", "EPG", "pointing game")


def maps_table(runs: Mapping[str, Run]) -> str:
    """A row per model and method; paired with random, sample by sample."""
    served = {
        (name, method): run["methods"][method]
        for name, run in runs.items()
        for method in METHODS
        if "unsupported" not in run["methods"][method]
    }
    above = {
        (name, method): estimate(
            paired([row["faithfulness"]], [runs[name]["methods"]["random"]["faithfulness"]]), same_samples=True
        )
        for (name, method), row in served.items()
        if method != "random"
    }
    stars = starred(above)
    rows = []
    for key, row in served.items():
        line = {"model": f"{key[0]} ({runs[key[0]]['accuracy']:.0%} right)", "method": f"`{key[1]}`"}
        line |= {measure: str(estimate([row[measure]], same_samples=True)) for measure in MEASURES}
        line["minus `random`"] = f"{above[key]}{' *' if key in stars else ''}" if key in above else ""
        line["s per sample"] = f"{row['seconds'] / len(row['EPG']):.1f}"
        rows.append(line)
    moved = max(max(row["logits moved"]) for row in served.values())
    chance = ", ".join(
        f"{name} {estimate([run['methods']['random']['chance']], same_samples=True).mean:.2f}"
        for name, run in runs.items()
    )
    return (
        f"{markdown(rows)}\n\nChance level of EPG: {chance}. Logits of the recorded model differ from its own by "
        f"{moved:.0e} at most. `*`: above `random` on the same samples, p <= 0.05 after Holm's correction."
    )


def arms_table(
    runs: Mapping[str, Run],
    keys: Mapping[str, Callable[[Run], str]],
    measures: Sequence[Measure],
    compared: str,
    plain: str,
) -> str:
    """A row per group of runs that differ in nothing but their seed, in the order in which they were first made.

    Args:
        runs: All.
        keys: The columns that name a row, and what stands in them; the last one is the arm.
        measures: A column each.
        compared: The measure by which each arm is held against the plain one of the same other columns.
        plain: The arm that the others are held against.
    """
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in sorted(runs.values(), key=lambda run: run["seed"]):
        groups.setdefault(tuple(name(run) for name in keys.values()), []).append(run)
    (chosen,) = (measure for measure in measures if measure.name == compared)
    differences = signed(
        {key: chosen.difference(found, groups[*key[:-1], plain]) for key, found in groups.items() if key[-1] != plain},
        digits=2,
    )
    seen = any("named" in run for run in runs.values())
    rows = [
        dict(zip(keys, key, strict=True))
        | {measure.name: measure.cell(found) for measure in measures}
        | {f"{compared}, less {plain}": differences.get(key, "")}
        | ({"faults in": _faults(found)} if seen else {})
        | {"s": f"{mean_interval([run['seconds'] for run in found])[0]:.0f}"}
        for key, found in groups.items()
    ]
    return markdown(rows)


def _faults(runs: Sequence[Run]) -> str:
    """Of how many runs the monitor named faults, and which; earlier runs, under a monitor without cues, say nothing."""
    known = [run["named"] for run in runs if "named" in run]
    faults = [{each["cue"] for each in named if each["is_fault"]} for named in known]
    cues = ", ".join(sorted(set().union(*faults)))
    return f"{sum(map(bool, faults))} of {len(known)}" + (f": {cues}" if cues else "") if known else ""


def unmarked_table(runs: Sequence[Run]) -> str:
    """What inspections without annotations name of each model that had some, with effects in points."""

    def cell(findings: Sequence[Mapping[str, Any]]) -> str:
        said = (f"{one['cue']} {100 * one['effect']:.0f}" + " (shortcut)" * one["is_fault"] for one in findings)
        return ", ".join(said) or "nothing"

    known = [run for run in runs if "without annotations" in run]
    return markdown(
        [
            {"model": run.get("network", "pets"), "arm": run["arm"], "seed": str(run["seed"])}
            | {name: cell(found) for name, found in run["without annotations"].items()}
            for run in sorted(known, key=lambda run: (run.get("network", "pets"), run["arm"], run["seed"]))
        ]
    )


def timed_table(runs: Mapping[str, Run]) -> str:
    """A row per training that was made to be timed."""
    return markdown(
        [
            {
                "watermark": run["place"],
                "arm": run["arm"],
                "pixels": str(run["size"]),
                "epochs": str(run["epochs"]),
                "s of processor time": f"{run['seconds']:.0f}",
                "the last evaluation, s by the clock": f"{run['monitor']['relevance/seconds']:.0f}",
            }
            for run in runs.values()
        ]
    )
