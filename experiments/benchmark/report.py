"""From saved runs to the tables of README.md."""

from collections.abc import Callable, Sequence

import numpy as np

from experiments.benchmark.cases import (
    DEVELOPED_SINCE,
    EIGHTH,
    EIGHTH_TEXTS,
    IMAGE_KINDS,
    NEW_IMAGE_KINDS,
    NINTH,
    NINTH_TEXTS,
    SEVENTH,
    TEXT_KINDS,
    UNSEEN,
    UNSEEN_TEXTS,
    UNTOUCHED,
)
from experiments.benchmark.scoring import (
    AGAIN,
    DETECTORS,
    FALSE_ALARMS,
    Detector,
    auroc_of,
    confirmed,
    cost,
    cut_of,
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

GOALS = {ANNOTATED: 0.98, BARE: 0.95}


def tables(runs: Sequence[Run]) -> dict[str, str]:
    """All of them, by name."""
    made = {
        "runs": run_counts,
        "goals": goal_table,
        "detectors": detector_table,
        "flags": flag_table,
        "kinds": kind_table,
        "lead": lead_table,
    }
    return {name: table(runs) for name, table in (made | {"false alarms": false_alarms}).items()}


def tables_again(runs: Sequence[Run], detectors: Sequence[Detector] = AGAIN) -> dict[str, str]:
    """Those of a later test, by name."""
    return {
        "runs": run_counts(runs),
        "goals": goal_table(runs, detectors),
        "detectors": detector_table(runs, detectors),
        "flags": flag_table(runs, detectors),
        "kinds": kind_table(runs, detectors),
        "false alarms": false_alarms(runs),
    }


def tables_third(runs: Sequence[Run]) -> dict[str, str]:
    """Those of the third test, by name; the goals are those of kinds that nobody has developed on yet."""
    undeveloped = [run for run in runs if not planted(run) or run["kind"] not in DEVELOPED_SINCE]
    goals = {
        "goals, kinds never developed on": goal_table(undeveloped, AGAIN),
        "detectors, kinds never developed on": detector_table(undeveloped, AGAIN),
    }
    return goals | tables_again(runs)


def tables_of_images(runs: Sequence[Run]) -> dict[str, str]:
    """Those of the fifth test, by name; the goals are those of kinds that no finding was built for."""
    untouched = [run for run in runs if not planted(run) or run["kind"] in UNTOUCHED]
    headline = {
        "goals, kinds that no finding was built for": goal_table(untouched, AGAIN),
        "detectors, kinds that no finding was built for": detector_table(untouched, AGAIN),
    }
    return headline | tables_again(runs)


def goal_table(runs: Sequence[Run], detectors: Sequence[Detector] = DETECTORS) -> str:
    """What was asked for, what was reached, and whether that is enough."""
    rows = []
    for each in detectors:
        if each.flag is None:
            continue
        wanted = next(goal for name, goal in GOALS.items() if name in each.name)
        found = auroc_of(runs, each.score)
        flags = [each.flag(run) for run in runs if not planted(run)]
        row = {"monitor": each.name, "AUROC": str(found), "asked for": f"{wanted:.2f}"}
        row["met"] = "yes" if found.value >= wanted else "no"
        row["clean runs flagged"] = _counted(flags)
        row["at most 3 of 100"] = "yes" if flags and sum(flags) <= FALSE_ALARMS * len(flags) else "no"
        rows.append(row)
    return markdown(rows)


def run_counts(runs: Sequence[Run]) -> str:
    """How many runs there are."""
    seeds = sorted({run["seed"] for run in runs})
    number = sum(planted(run) for run in runs)
    found = [run for run in runs if positive(run)]
    return (
        f"{len(runs)} runs of seeds {seeds[0]} to {seeds[-1]}: {number} planted, of which {len(found)} are positive "
        f"({sum(weak(run) for run in found)} weak) and {number - len(found)} did not surely learn their shortcut; "
        f"{len(runs) - number} clean. A run took {np.median([run['seconds'] for run in runs]):.0f} s (median)."
    )


def detector_table(runs: Sequence[Run], detectors: Sequence[Detector] = DETECTORS) -> str:
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
            for each in detectors
        ]
    )


def _reads(runs: Sequence[Run], score: Callable[[Run], float]) -> bool:
    """Whether it says something of every run."""
    return not any(np.isnan(score(run)) for run in runs)


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def flag_table(runs: Sequence[Run], detectors: Sequence[Detector] = DETECTORS) -> str:
    """What the monitors say themselves: of positive runs, weak ones, and clean ones of both sorts."""
    rows = []
    for each in detectors:
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
    found = share(flags)
    return f"{sum(flags)} of {len(flags)} ({found.low:.2f} to {found.high:.2f})" if flags else ""


def kind_table(runs: Sequence[Run], detectors: Sequence[Detector] = DETECTORS) -> str:
    """Of each kind: the runs, what the shortcut costs, and how many positive ones are flagged or above the cut."""
    rows = []
    cuts = {each.name: cut_of(runs, each.score) for each in detectors if each.flag is None}
    images = (*IMAGE_KINDS, *NEW_IMAGE_KINDS, *UNSEEN, *SEVENTH, *EIGHTH, *NINTH)
    texts = (*TEXT_KINDS, *UNSEEN_TEXTS, *EIGHTH_TEXTS, *NINTH_TEXTS)
    for kind in (*images, *texts):
        mine = [run for run in runs if planted(run) and run["kind"] == kind]
        if not mine:
            continue
        found = [run for run in mine if positive(run)]
        costs = [100 * cost(run) for run in found]
        row = {"kind": kind, "runs": str(len(mine)), "positive": str(len(found))}
        row["points of accuracy"] = f"{min(costs):.0f} to {max(costs):.0f}" if found else ""
        for each in detectors:
            if each.flag is not None:
                row[each.name] = str(sum(each.flag(run) for run in found))
            else:
                row[each.name] = str(sum(each.score(run) > cuts[each.name] for run in found))
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
    """Every confirmed finding of a clean run's end, and the clean runs that had one before."""
    clean = [run for run in judged(runs) if not planted(run)]
    rows = [
        {
            "run": f"{run['task']}, {run['kind']}, seed {run['seed']}",
            "monitor": name,
            "finding": f"{each['kind']}, {each['scope']}: {each['where']}"
            + " (for you to judge)" * (not each["is_fault"]),
            "effect": f"{each['effect']:.2f}",
        }
        for run in clean
        for name in (ANNOTATED, BARE)
        for each in confirmed(run["evaluations"][-1], name)
    ]
    ever = [
        sum(any(confirmed(each, name) for each in run["evaluations"]) for run in clean) for name in (ANNOTATED, BARE)
    ]
    told = " and ".join(f"{number} {name}" for number, name in zip(ever, (ANNOTATED, BARE), strict=True))
    return f"{markdown(rows) if rows else 'None.'}\n\nClean runs with a confirmed finding in any evaluation: {told}."
