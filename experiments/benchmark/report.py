"""From saved runs to the tables of README.md."""

from collections.abc import Callable, Sequence

import numpy as np

from experiments.benchmark.cases import IMAGE_KINDS, TEXT_KINDS
from experiments.benchmark.scoring import (
    DETECTORS,
    auroc_of,
    cost,
    cut_of,
    found,
    judged,
    leads,
    planted,
    positive,
    recall_at,
    share,
    sort_of_clean,
    weak,
)
from experiments.benchmark.watch import ANNOTATED, BARE
from experiments.parallel import Run
from experiments.table import markdown


def tables(runs: Sequence[Run]) -> dict[str, str]:
    """All of them, by name."""
    made = {
        "runs": run_counts,
        "detectors": detector_table,
        "flags": flag_table,
        "kinds": kind_table,
        "lead": lead_table,
        "false alarms": false_alarms,
    }
    return {name: table(runs) for name, table in made.items()}


def run_counts(runs: Sequence[Run]) -> str:
    """How many runs there are."""
    seeds = sorted({run["seed"] for run in runs})
    number = sum(planted(run) for run in runs)
    learned = [run for run in runs if positive(run)]
    return (
        f"{len(runs)} runs of seeds {seeds[0]} to {seeds[-1]}: {number} planted, of which {len(learned)} are positive "
        f"({sum(weak(run) for run in learned)} weak) and {number - len(learned)} did not surely learn their shortcut; "
        f"{len(runs) - number} clean. A run took {np.median([run['seconds'] for run in runs]):.0f} s (median)."
    )


def detector_table(runs: Sequence[Run]) -> str:
    """How well each tells positive runs from clean ones."""
    images = [run for run in runs if run["task"] != "texts"]
    texts = [run for run in runs if run["task"] == "texts"]
    return markdown(
        [
            {
                "detector": each.name,
                "AUROC": str(auroc_of(runs, each.score)) if _reads(runs, each.score) else "images alone",
                "images": str(auroc_of(images, each.score)),
                "texts": str(auroc_of(texts, each.score)),
                "recall at 3 % false alarms": _number(recall_at(runs, each.score)),
            }
            for each in DETECTORS
        ]
    )


def _reads(runs: Sequence[Run], score: Callable[[Run], float]) -> bool:
    """Whether it says something of every run."""
    return not any(np.isnan(score(run)) for run in runs)


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def flag_table(runs: Sequence[Run]) -> str:
    """What the monitors say themselves: of positive runs, weak ones, and clean ones of both sorts."""
    rows = []
    for each in DETECTORS:
        if each.flag is None:
            continue
        row = {"detector": each.name, "recall": str(share([each.flag(run) for run in runs if positive(run)]))}
        row["of weak ones"] = str(share([each.flag(run) for run in runs if weak(run)]))
        unlearned = [run for run in runs if planted(run) and not positive(run)]
        row["planted, not surely learned"] = _counted([each.flag(run) for run in unlearned])
        clean = [run for run in runs if not planted(run)]
        for name in ("no mark", "marks without relation"):
            row[f"clean flagged, {name}"] = _counted([each.flag(run) for run in clean if sort_of_clean(run) == name])
        rows.append(row | {"clean flagged, all": _counted([each.flag(run) for run in clean])})
    return markdown(rows)


def _counted(flags: Sequence[bool]) -> str:
    """How many of how many, with Wilson's interval of the share."""
    ratio = share(flags)
    return f"{sum(flags)} of {len(flags)} ({ratio.low:.2f} to {ratio.high:.2f})" if flags else ""


def kind_table(runs: Sequence[Run]) -> str:
    """Of each kind: the runs, what the shortcut costs, and how many positive ones are flagged or above the cut."""
    rows = []
    cuts = {each.name: cut_of(runs, each.score) for each in DETECTORS if each.flag is None}
    for kind in (*IMAGE_KINDS, *TEXT_KINDS):
        mine = [run for run in runs if planted(run) and run["kind"] == kind]
        if not mine:
            continue
        learned = [run for run in mine if positive(run)]
        costs = [100 * cost(run) for run in learned]
        row = {"kind": kind, "runs": str(len(mine)), "positive": str(len(learned))}
        row["points of accuracy"] = f"{min(costs):.0f} to {max(costs):.0f}" if learned else ""
        for each in DETECTORS:
            if each.flag is not None:
                row[each.name] = str(sum(each.flag(run) for run in learned))
            else:
                row[each.name] = str(sum(each.score(run) > cuts[each.name] for run in learned))
        rows.append(row)
    return markdown(rows)


def lead_table(runs: Sequence[Run]) -> str:
    """By how many steps the monitor is ahead of the accuracy, in positive runs."""
    rows = []
    for name in (ANNOTATED, BARE):
        pairs = leads(runs, name)
        both = [(flag, seen) for flag, seen in pairs if flag is not None and seen is not None]
        differences = [seen - flag for flag, seen in both]
        rows.append(
            {
                "monitor": name,
                "ahead": str(sum(each > 0 for each in differences)),
                "at the same step": str(sum(each == 0 for each in differences)),
                "behind": str(sum(each < 0 for each in differences)),
                "never": str(sum(flag is None for flag, _ in pairs)),
                "median steps ahead": f"{np.median(differences):+.0f}" if differences else "",
            }
        )
    return markdown(rows)


def false_alarms(runs: Sequence[Run]) -> str:
    """Everything that is named of a clean run's end, and the clean runs of which a monitor ever found something."""
    clean = [run for run in judged(runs) if not planted(run)]
    rows = [
        {
            "run": f"{run['task']}, {run['kind']}, seed {run['seed']}",
            "monitor": name,
            "named": each["cue"] + " (a fault)" * each["is_fault"],
            "effect": f"{each['effect']:.2f}",
        }
        for run in clean
        for name in (ANNOTATED, BARE)
        for each in run["evaluations"][-1][name]["named"]
    ]
    ever = [sum(any(found(each, name) for each in run["evaluations"]) for run in clean) for name in (ANNOTATED, BARE)]
    told = " and ".join(f"{number} {name}" for number, name in zip(ever, (ANNOTATED, BARE), strict=True))
    return f"{markdown(rows) if rows else 'None.'}\n\nClean runs of which something was found at any time: {told}."
