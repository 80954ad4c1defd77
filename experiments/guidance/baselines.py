"""What users would try first: AFR, JTT, group DRO with tuned settings; and how settings are chosen without groups.

`python -m experiments.guidance.baselines` makes the runs that are missing, and writes the tables into README.md.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from experiments.guidance import afr, report
from experiments.guidance.arms import PLAIN, UPPER, Arm, Task
from experiments.guidance.benchmarks import Benchmark, benchmarks, no_evidence
from experiments.guidance.fitting import Trained, draw_weights, fit
from experiments.guidance.results import CHOOSING_SEED, complete
from experiments.parallel import Run, load
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "baselines.jsonl"
SEEDS = {"tweets": (0, 1, 2), "digits": (0, 1)}
AFR, JTT, GROUP_DRO = "AFR", "JTT", "group DRO, tuned"
SWAP, FEW = "swap", "swap, 5 % annotated, drawn half of the time"
FIRST_SHARE = 0.25
"""Of plain training's steps, those of JTT's first model, whose errors count more."""
ANNOTATED = 0.05
SETTINGS: dict[str, Sequence[dict[str, float]]] = {
    JTT: [{"factor": factor} for factor in (5.0, 20.0, 100.0)],
    GROUP_DRO: [{"step": step, "decay": decay} for step in (0.01, 0.1) for decay in (0.05, 1.0)],
}
"""What there is to choose from; none for the others."""
RULES = {"worst class": "worst class", "worst group, told the groups": "worst known group"}
"""What a setting is chosen by on validation data that have the shortcut: column by name."""


@dataclass(frozen=True)
class Choice:
    """What a rule takes of an arm's settings."""

    arm: str
    rule: str
    setting: dict[str, float]


def train(task: Task) -> dict[str, Any]:
    """One run: trained, then measured on the validation or the test samples."""
    torch.set_num_threads(1)
    benchmark = benchmarks()[task.setting["task"]]
    found, net = ARMS[task.arm](benchmark, task)
    measured = benchmark.judged(net, "val", task.seed) if task.choosing else benchmark.tested(net, task.seed)
    return {**found, **measured}


def _plain(benchmark: Benchmark, task: Task) -> tuple[dict[str, Any], torch.nn.Module]:
    """Cross-entropy."""
    return _fitted(benchmark, task, Arm(), benchmark.columns("train", benchmark.setting["correlation"], task.seed))


def _afr(benchmark: Benchmark, task: Task) -> tuple[dict[str, Any], torch.nn.Module]:
    """Plain training, then a last layer on validation samples, which no other arm is trained on."""
    found, net = _plain(benchmark, task)
    held_out = benchmark.columns("val", benchmark.setting["correlation"], task.seed)
    return {**found, **afr.retrain(net, held_out, benchmark)}, net


def _jtt(benchmark: Benchmark, task: Task) -> tuple[dict[str, Any], torch.nn.Module]:
    """Liu et al. 2021, "Just train twice": what a first model errs on is drawn more often by a second one."""
    columns = benchmark.columns("train", benchmark.setting["correlation"], task.seed)
    first = benchmark.module(task.seed, Arm())
    alike = torch.ones(len(columns["label"]), dtype=torch.float64)
    fit(first, benchmark.batches(columns, alike, task.seed), round(FIRST_SHARE * benchmark.steps), 0.0, task.seed)
    wrong = benchmark.logits(first.net, columns).argmax(1) != columns["label"]
    weights = torch.where(wrong, task.setting["factor"], 1.0).double()
    found, net = _fitted(benchmark, task, Arm(), columns, weights)
    conflicting = columns["group"] == 0
    return {
        **found,
        "errors": int(wrong.sum()),
        "conflicting among errors": (wrong & conflicting).sum().item() / max(int(wrong.sum()), 1),
        "errors among conflicting": wrong[conflicting].double().mean().item(),
    }, net


def _group_dro(benchmark: Benchmark, task: Task) -> tuple[dict[str, Any], torch.nn.Module]:
    """Told the groups, which are drawn alike."""
    arm = Arm(rule="group_dro", group_step=task.setting["step"], weight_decay=task.setting["decay"])
    columns = benchmark.columns("train", benchmark.setting["correlation"], task.seed)
    return _fitted(benchmark, task, arm, columns, draw_weights(columns, arm))


def _few(benchmark: Benchmark, task: Task) -> tuple[dict[str, Any], torch.nn.Module]:
    """Surroundings of those samples are swapped that have an annotation; half of each batch is drawn of them."""
    columns = benchmark.columns("train", benchmark.setting["correlation"], task.seed)
    columns, annotated = no_evidence(columns, ANNOTATED, task.seed)
    weights = torch.where(annotated, 1 / ANNOTATED, 1 / (1 - ANNOTATED)).double()
    return _fitted(benchmark, task, Arm({"loss": "swap"}), columns, weights)


def _fitted(
    benchmark: Benchmark, task: Task, arm: Arm, columns: Any, weights: torch.Tensor | None = None
) -> tuple[dict[str, Any], torch.nn.Module]:
    weights = draw_weights(columns, arm) if weights is None else weights
    module: Trained = benchmark.module(task.seed, arm)
    seconds = fit(module, benchmark.batches(columns, weights, task.seed), benchmark.steps, task.weight, task.seed)
    return {"seconds": seconds}, module.net


ARMS: dict[str, Callable[[Benchmark, Task], tuple[dict[str, Any], torch.nn.Module]]] = {
    AFR: _afr,
    JTT: _jtt,
    GROUP_DRO: _group_dro,
    FEW: _few,
}
BESIDE = (PLAIN, UPPER, "group DRO", "last layer anew, groups alike (DFR)", "last layer anew, other surroundings", SWAP)
"""Arms of the tables above, that are shown beside."""
LABELS = {
    AFR: "none",
    JTT: "none",
    GROUP_DRO: "groups of all",
    FEW: "5 % annotated",
    PLAIN: "none",
    UPPER: "",
    "group DRO": "groups of all",
    "last layer anew, groups alike (DFR)": "groups of 600 more",
    "last layer anew, other surroundings": "600 more annotated",
    SWAP: "all annotated",
}
"""What each arm is told beside the classes."""


def chosen(runs: Iterable[Run], name: str) -> list[Choice]:
    """By every rule the setting of every arm that has something to choose."""
    found = []
    for arm, settings in SETTINGS.items():
        mine = [run for run in runs if run["choosing"] and run["arm"] == arm and run["task"] == name]
        if len(mine) < len(settings):
            continue
        for rule, column in RULES.items():
            best = max(mine, key=lambda run, column=column: run[column])
            found.append(Choice(arm, rule, {each: best[each] for each in settings[0]}))
    return found


def tasks_of(name: str, runs: Iterable[Run], choosing: bool) -> list[Task]:
    """The runs that choose, or those that count."""
    if choosing:
        return [
            Task(arm, CHOOSING_SEED, {"task": name, **setting}, choosing=True)
            for arm, settings in SETTINGS.items()
            for setting in settings
        ]
    pairs = [(arm, {}) for arm in ARMS if arm not in SETTINGS]
    pairs += [(each.arm, each.setting) for each in chosen(runs, name)]
    unique = {str(pair): pair for pair in pairs}.values()
    return [Task(arm, seed, {"task": name, **setting}) for seed in SEEDS[name] for arm, setting in unique]


def goals_table(runs: Sequence[Run], name: str, beside: Sequence[Run]) -> str:
    """A row per arm and setting: accuracy, accuracy without the shortcut, worst group; the best worst group first."""
    rules: dict[str, list[str]] = {}
    for each in chosen(runs, name):
        rules.setdefault(f"{each.arm} {each.setting}", []).append(each.rule)
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in beside:
        if run["arm"] in BESIDE and not run["choosing"] and run["seed"] in SEEDS[name]:
            groups.setdefault((run["arm"], "", ""), []).append(run)
    for run in runs:
        if run["task"] == name and not run["choosing"]:
            setting = {each: run[each] for each in (SETTINGS.get(run["arm"]) or [{}])[0]}
            text = ", ".join(f"{key} {value:g}" for key, value in setting.items())
            by = " and ".join(rules.get(f"{run['arm']} {setting}", []))
            groups.setdefault((run["arm"], text, by), []).append(run)
    columns = ("accuracy", "accuracy without", "worst group")
    rows = []
    for (arm, setting, by), mine in sorted(groups.items(), key=lambda pair: -_mean(pair[1], "worst group")):
        cells = {column: report.shown([run[column] for run in mine]) for column in columns}
        told = {"arm": arm, "is told": LABELS[arm], "setting": setting, "chosen by": by, "seeds": str(len(mine))}
        rows.append({**told, **cells})
    return markdown(rows)


def _mean(runs: Sequence[Run], column: str) -> float:
    return sum(run[column] for run in runs) / len(runs)


def tables() -> dict[str, str]:
    """Text by mark."""
    runs = list(load(RESULTS).values())
    digits = [run for run in load(HERE / "results" / "images.jsonl").values() if _is_main(run)]
    beside = {"tweets": list(load(HERE / "results" / "tweets.jsonl").values()), "digits": digits}
    return {f"goals, {name}": goals_table(runs, name, beside[name]) for name in benchmarks()}


def _is_main(run: Run) -> bool:
    setting = benchmarks()["digits"].setting
    return all(run[name] == value for name, value in setting.items())


def main() -> None:
    """Make the runs that are missing, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="of tweets and digits; else both")
    for name in parser.parse_args().tasks or benchmarks():
        for choosing in (True, False):
            complete(RESULTS, tasks_of(name, load(RESULTS).values(), choosing), train, 1)
    for mark, text in tables().items():
        write_between(HERE / "README.md", text, f"<!-- {mark} -->", f"<!-- end of {mark} -->")


if __name__ == "__main__":
    main()
