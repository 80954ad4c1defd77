"""From saved runs to tables."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.detection.cases import CLEAN
from experiments.detection.scoring import (
    Cuts,
    Ratio,
    accuracy_epoch,
    auroc,
    auroc_with_interval,
    confirmed,
    detectors,
    flag_epoch,
    flagged,
    planted,
    precision,
    recall,
    severity,
)
from experiments.detection.watch import ANNOTATED, BARE, DEFAULT_MONITORS, MAPS, MONITORS
from experiments.parallel import Run
from experiments.table import markdown

MAIN = MAPS[0]


def tables(runs: Sequence[Run], cuts: Cuts) -> dict[str, str]:
    """All of them, by name."""
    return {
        "detectors": detector_table(runs, cuts),
        "lead": lead_table(runs),
        "kinds": kinds_table(runs),
        "false alarms": false_alarms(runs),
        "runs": runs_table(runs),
    }


def tables_by_default(runs: Sequence[Run]) -> dict[str, str]:
    """Those of runs under the monitors that were told nothing."""
    return {"flags": flag_table(runs), "runs": found_table(runs)}


def flag_table(runs: Sequence[Run]) -> str:
    """Of every kind of shortcut, how many runs are flagged at the end, and how many ever were."""
    rows = []
    for task, shortcut in sorted({(run["task"], run["shortcut"]) for run in runs}):
        mine = [run for run in runs if (run["task"], run["shortcut"]) == (task, shortcut)]
        row = {"shortcut": f"{_named(shortcut)} ({task})", "runs": str(len(mine))}
        for name in DEFAULT_MONITORS:
            row["flagged in the last epoch"] = str(sum(flagged(run, name) for run in mine))
            row["in any epoch"] = str(sum(flag_epoch(run, name) is not None for run in mine))
        rows.append(row)
    return markdown(rows)


def found_table(runs: Sequence[Run]) -> str:
    """What was confirmed in the last epoch of each run, clean ones included; the largest effect of each kind."""
    rows = []
    for run in runs:
        last = run["epochs"][-1]
        effects: dict[str, float] = {}
        for name in DEFAULT_MONITORS:
            for finding in confirmed(last, name):
                effects[finding["kind"]] = max(finding["effect"], effects.get(finding["kind"], 0.0))
        told = ", ".join(
            f"`{kind}` {effect:.2f}" for kind, effect in sorted(effects.items(), key=lambda each: -each[1])
        )
        rows.append(
            {
                "shortcut": f"{_named(run['shortcut'])} ({run['task']})",
                "correlation": f"{run['correlation']:g}" if planted(run) else "",
                "seed": str(run["seed"]),
                "accuracy": f"{last['accuracy']:.3f}",
                "accuracy without": f"{last['accuracy without']:.3f}",
                "confirmed in the last epoch": told or "nothing",
            }
        )
    return markdown(rows)


def shown(ratio: Ratio) -> str:
    """With its interval."""
    return "none" if np.isnan(ratio.value) else f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def detector_table(runs: Sequence[Run], cuts: Cuts) -> str:
    """How well each tells runs with a shortcut from clean ones."""
    rows = []
    for name, score, flag in detectors(cuts):
        row = {"detector": name, "AUROC": shown(auroc_with_interval(runs, score))}
        for task in dict.fromkeys(run["task"] for run in runs):
            row[task] = f"{auroc([run for run in runs if run['task'] == task], score):.2f}"
        alarms = sum(flag(run) for run in runs if not planted(run))
        row |= {"precision": shown(precision(runs, flag)), "recall": shown(recall(runs, flag))}
        rows.append(row | {"clean runs flagged": str(alarms)})
    return markdown(rows)


def lead_table(runs: Sequence[Run]) -> str:
    """Of the runs with a shortcut: how many epochs the first confirmed finding comes before the accuracy shows it."""
    rows = []
    for monitor in MONITORS:
        pairs = [(flag_epoch(run, monitor), accuracy_epoch(run)) for run in runs if planted(run)]
        leads = [seen - flag for flag, seen in pairs if flag is not None and seen is not None]
        spread = ", ".join(f"{lead:+d}: {leads.count(lead)}" for lead in sorted(set(leads), reverse=True))
        rows.append(
            {
                "monitor": monitor,
                "epochs ahead: runs": spread or "none",
                "median": f"{np.median(leads):+.1f}" if leads else "",
                "flag alone": str(sum(flag is not None and seen is None for flag, seen in pairs)),
                "accuracy alone": str(sum(flag is None and seen is not None for flag, seen in pairs)),
                "neither": str(pairs.count((None, None))),
            }
        )
    return markdown(rows)


def kinds_table(runs: Sequence[Run], method: str = MAIN) -> str:
    """In how many runs a kind of finding is confirmed in the last epoch, with annotations / without."""
    pair = [f"{kind} {method}" for kind in (ANNOTATED, BARE)]

    def found(run: Run, monitor: str) -> set[str]:
        return {finding["kind"] for finding in confirmed(run["epochs"][-1], monitor)}

    kinds = sorted({kind for run in runs for monitor in pair for kind in found(run, monitor)})
    rows = []
    for task, shortcut in dict.fromkeys((run["task"], run["shortcut"]) for run in runs):
        mine = [run for run in runs if (run["task"], run["shortcut"]) == (task, shortcut)]
        row = {"shortcut": f"{_named(shortcut)} ({task})", "runs": str(len(mine))}
        row |= {kind: " / ".join(str(sum(kind in found(run, m) for run in mine)) for m in pair) for kind in kinds}
        rows.append(row)
    return markdown(rows)


def false_alarms(runs: Sequence[Run]) -> str:
    """Every confirmed finding of a clean run's last epoch, and how many there were in earlier ones."""
    rows = [
        {
            "run": f"{run['task']}, seed {run['seed']}",
            "monitor": monitor,
            "finding": f"{finding['kind']}, {finding['scope']}: {finding['where']}",
            "effect": _interval(finding),
            "p": f"{finding['p_value']:.2g}",
        }
        for run in runs
        if not planted(run)
        for monitor in MONITORS
        for finding in confirmed(run["epochs"][-1], monitor)
    ]
    earlier = {monitor: _earlier(runs, monitor) for monitor in MONITORS}
    told = ", ".join(f"{monitor} {number}" for monitor, number in earlier.items())
    return f"{markdown(rows) if rows else 'None.'}\n\nClean runs with a confirmed finding in an earlier epoch: {told}."


def _earlier(runs: Sequence[Run], monitor: str) -> int:
    return sum(any(confirmed(epoch, monitor) for epoch in run["epochs"][:-1]) for run in runs if not planted(run))


def _interval(finding: Mapping[str, object]) -> str:
    low, high = finding["interval"]  # type: ignore[misc]
    return f"{finding['effect']:.2f} ({low:.2f} to {high:.2f})"


def runs_table(runs: Sequence[Run]) -> str:
    """Each run with a shortcut, and the clean ones together."""
    rows = [
        _row(f"{run['shortcut']} ({run['task']})", f"{run['correlation']:g}", [run]) for run in runs if planted(run)
    ]
    for task in dict.fromkeys(run["task"] for run in runs):
        rows.append(_row(f"{_named(CLEAN)} ({task})", "", [r for r in runs if r["task"] == task and not planted(r)]))
    return markdown(rows)


def _row(name: str, correlation: str, runs: Sequence[Run]) -> dict[str, str]:
    """Of one run, or of several with least and largest values."""
    accuracies = {name: [run["epochs"][-1][name] for run in runs] for name in ("accuracy", "accuracy without")}
    severities = {f"severity, {kind}": [severity(run, f"{kind} {MAIN}") for run in runs] for kind in (ANNOTATED, BARE)}
    cells = {key: _range(values) for key, values in (accuracies | severities).items()}
    epochs = {"accuracy shows it in epoch": [_told(accuracy_epoch(run)) for run in runs]}
    epochs |= {
        f"flagged in, {kind}": [_told(flag_epoch(run, f"{kind} {MAIN}")) for run in runs] for kind in (ANNOTATED, BARE)
    }
    return {
        "shortcut": name,
        "correlation": correlation,
        **cells,
        **{key: ", ".join(dict.fromkeys(told)) for key, told in epochs.items()},
    }


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"


def _told(epoch: int | None) -> str:
    return "never" if epoch is None else str(epoch)


def _named(shortcut: str) -> str:
    return "clean" if shortcut == CLEAN else shortcut
