"""What users would try first: JTT, tuned group DRO; and how settings are chosen without groups.

`python -m experiments.guidance.baselines` makes the runs that are missing, and writes the tables into README.md.
"""

import argparse
import copy
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

import lrptrain
from experiments.guidance import report
from experiments.guidance.arms import PLAIN, UPPER, WEIGHTS, Arm, Task
from experiments.guidance.benchmarks import Benchmark, benchmarks, with_few_annotations
from experiments.guidance.fitting import Trained, draw_weights, fit, repair_last_layer
from experiments.guidance.results import CHOOSING_SEED, choices, complete
from experiments.guidance.results import RULES as RULES_ABOVE
from experiments.parallel import Run, load
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "baselines.jsonl"
SEEDS = {"tweets": (0, 1, 2, 3, 4), "digits": (0, 1, 2, 3, 4), "things": (0, 1, 2, 3, 4)}
JTT, GROUP_DRO = "JTT", "group DRO, tuned"
GUIDED = {"tweets": "consistency + energy", "digits": "consistency", "things": "consistency"}
"""The best guidance of each table above, whose weight is chosen once more, by the worst class; things as digits."""
SWAP, FEW = "swap", "swap, 5 % annotated, drawn half of the time"
SWAPPED = "swapped cross-entropy"
DFR, SURROUNDINGS = "last layer anew, groups alike (DFR)", "last layer anew, other surroundings"
FEW_GUIDED = "consistency + energy, 5 % annotated, drawn half of the time"
"""On tweets alone, with the default weight."""
DEFAULT = 0.0
"""Stands for no weight: the task's gradient bounds the guidance."""
FIRST_SHARE = 0.25
"""Of plain training's steps, those of JTT's first model, whose errors count more."""
ANNOTATED = 0.05
SETTINGS: dict[str, Sequence[dict[str, float]]] = {
    JTT: [{"factor": factor} for factor in (5.0, 20.0, 100.0)],
    GROUP_DRO: [{"step": step, "decay": decay} for step in (0.01, 0.1) for decay in (0.05, 1.0)],
    **{arm: [{"factor": weight} for weight in (DEFAULT, *WEIGHTS)] for arm in GUIDED.values()},
}
"""What there is to choose from, nothing for other arms: of a guidance its weight."""
RULES = {"worst class": "worst class", "worst group, told the groups": "worst known group"}
"""What a setting is chosen by on validation data that have the shortcut: column by name."""
WORST_GROUP_GOAL, IN_DISTRIBUTION_GOAL = -0.01, -0.02
"""How far below the best of group DRO and DFR the worst group may be, and below the upper bound the accuracy."""
LEAST_SEEDS = 3
"""Fewer have no interval worth the name."""


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
    found, net = _trained_plainly(task.setting["task"], task.seed)
    return dict(found), copy.deepcopy(net)


@lru_cache(maxsize=1)
def _trained_plainly(name: str, seed: int) -> tuple[dict[str, Any], torch.nn.Module]:
    """Made once for the arms that change the last layer alone."""
    benchmark = benchmarks()[name]
    columns = benchmark.columns("train", benchmark.setting["correlation"], seed)
    return _fitted(benchmark, Task(PLAIN, seed, {"task": name}), Arm(), columns)


def _control(benchmark: Benchmark, task: Task) -> tuple[dict[str, Any], torch.nn.Module]:
    """An arm of the tables above that has nothing to choose, with as many steps as plain training's time allows."""
    arm, correlation = benchmark.arm(task.arm), benchmark.setting["correlation"]
    if arm.repair:
        found, net = _plain(benchmark, task)
        repair_last_layer(net, arm, benchmark.columns("val", correlation, task.seed), 32, task.seed)
        return found, net
    columns = benchmark.columns("train", None if arm.clean else correlation, task.seed)
    return _fitted(benchmark, task, arm, columns, None, round(benchmark.steps / benchmark.costs()[task.arm]))


def _jtt(benchmark: Benchmark, task: Task) -> tuple[dict[str, Any], torch.nn.Module]:
    """Liu et al. 2021, "Just train twice": what a first model errs on is drawn more often by a second one."""
    columns = benchmark.columns("train", benchmark.setting["correlation"], task.seed)
    first = benchmark.module(task.seed, Arm())
    alike = torch.ones(len(columns["label"]), dtype=torch.float64)
    fit(first, benchmark.batches(columns, alike, task.seed), round(FIRST_SHARE * benchmark.steps), 0.0, task.seed)
    weights = lrptrain.jtt_weights(first.net, benchmark.batches(columns, alike, task.seed), task.setting["factor"])
    wrong = weights > 1
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
    columns, weights = _few_annotated(benchmark, task)
    return _fitted(benchmark, task, Arm({"loss": "swap"}), columns, weights)


def _few_guided(benchmark: Benchmark, task: Task) -> tuple[dict[str, Any], torch.nn.Module]:
    """The same samples guided by `consistency + energy`, for as many steps as plain training's time allows."""
    columns, weights = _few_annotated(benchmark, task)
    steps = round(benchmark.steps / benchmark.costs()[GUIDED["tweets"]])
    return _fitted(benchmark, task, Arm({"loss": "consistency+energy"}), columns, weights, steps)


def _few_annotated(benchmark: Benchmark, task: Task) -> tuple[Any, torch.Tensor]:
    """Columns with few annotations, and weights by which half of each batch is drawn of the samples that have one."""
    columns = benchmark.columns("train", benchmark.setting["correlation"], task.seed)
    columns, annotated = with_few_annotations(columns, ANNOTATED, task.seed)
    return columns, torch.where(annotated, 1 / ANNOTATED, 1 / (1 - ANNOTATED)).double()


def _guided(benchmark: Benchmark, task: Task) -> tuple[dict[str, Any], torch.nn.Module]:
    """With all annotations, and as many steps as plain training's time allows."""
    columns = benchmark.columns("train", benchmark.setting["correlation"], task.seed)
    steps = round(benchmark.steps / benchmark.costs()[task.arm])
    return _fitted(benchmark, task, benchmark.arm(task.arm), columns, None, steps)


def _fitted(
    benchmark: Benchmark,
    task: Task,
    arm: Arm,
    columns: Any,
    weights: torch.Tensor | None = None,
    steps: int | None = None,
) -> tuple[dict[str, Any], torch.nn.Module]:
    weights = draw_weights(columns, arm) if weights is None else weights
    steps = benchmark.steps if steps is None else steps
    module: Trained = benchmark.module(task.seed, arm)
    weight = task.setting["factor"] if arm.weights else 0.0
    seconds = fit(module, benchmark.batches(columns, weights, task.seed), steps, weight, task.seed)
    return {"seconds": seconds}, module.net


ARMS: dict[str, Callable[[Benchmark, Task], tuple[dict[str, Any], torch.nn.Module]]] = {
    JTT: _jtt,
    GROUP_DRO: _group_dro,
    FEW: _few,
    FEW_GUIDED: _few_guided,
    **dict.fromkeys(GUIDED.values(), _guided),
    PLAIN: _plain,
    **dict.fromkeys((UPPER, DFR, SURROUNDINGS, SWAP, SWAPPED), _control),
}
BESIDE = (PLAIN, UPPER, "group DRO", DFR, SURROUNDINGS, SWAP, SWAPPED)
"""Arms of the tables above, that are shown beside; where there is no such table, they are run here."""
LABELS = {
    JTT: "none",
    GROUP_DRO: "groups of all",
    FEW: "5 % annotated",
    FEW_GUIDED: "5 % annotated",
    PLAIN: "none",
    UPPER: "",
    DFR: "groups of 600 more",
    SURROUNDINGS: "600 more annotated",
    SWAP: "all annotated",
    SWAPPED: "all annotated",
    **dict.fromkeys(GUIDED.values(), "all annotated"),
}
"""What each arm is told beside the classes."""


def settings_of(name: str) -> dict[str, Sequence[dict[str, float]]]:
    """What there is to choose from in a table."""
    others = set(GUIDED.values()) - {GUIDED[name]}
    return {arm: settings for arm, settings in SETTINGS.items() if arm not in others}


def chosen(runs: Iterable[Run], name: str) -> list[Choice]:
    """By every rule the setting of every arm that has something to choose."""
    found = []
    for arm, settings in settings_of(name).items():
        mine = [run for run in runs if run["choosing"] and run["arm"] == arm and run["task"] == name]
        if len(mine) < len(settings):
            continue
        for rule, best in _rules(arm == GUIDED[name], mine).items():
            found.append(Choice(arm, rule, {each: best(mine)[each] for each in settings[0]}))
    return found


def _rules(annotated: bool, runs: Sequence[Run]) -> dict[str, Callable[[Sequence[Run]], Run]]:
    """What may choose among an arm's runs: who has annotations has no groups."""
    rules: dict[str, Callable[[Sequence[Run]], Run]] = {
        rule: partial(max, key=itemgetter(column)) for rule, column in RULES.items()
    }
    if not annotated:
        return rules
    measured = all("reliance, fill" in run for run in runs)
    return {"worst class": rules["worst class"], **(RULES_ABOVE if measured else {})}


def tasks_of(name: str, runs: Iterable[Run], choosing: bool) -> list[Task]:
    """The runs that choose, or those that count."""
    if choosing:
        return [
            Task(arm, CHOOSING_SEED, {"task": name, **setting}, choosing=True)
            for arm, settings in settings_of(name).items()
            for setting in settings
        ]
    above = {_named(run) for run in runs_above(name) if not run["choosing"]}
    alone = [arm for arm in ARMS if arm not in SETTINGS and (arm != FEW_GUIDED or name == "tweets")]
    pairs: list[tuple[str, dict[str, float]]] = [(arm, {}) for arm in alone]
    pairs += [(each.arm, each.setting) for each in chosen(runs, name)]
    unique = {str(pair): pair for pair in pairs if (pair[0], _written(pair[1])) not in above}.values()
    return [Task(arm, seed, {"task": name, **setting}) for seed in SEEDS[name] for arm, setting in unique]


def runs_above(name: str) -> list[Run]:
    """The runs of the table above, if there is one."""
    setting, files = benchmarks()[name].setting, {"tweets": "tweets.jsonl", "digits": "images.jsonl"}
    runs = load(HERE / "results" / files[name]).values() if name in files else ()
    return [run for run in runs if all(run[each] == value for each, value in setting.items())]


def goals_table(runs: Sequence[Run], name: str, beside: Sequence[Run]) -> str:
    """A row per arm and setting, the best worst group first: accuracies, and what they are less those of the goal.

    The rival is what has the best worst group of group DRO, whatever rule chose its setting, and DFR.
    """
    rules: dict[tuple[str, str], list[str]] = {}
    for rule in RULES_ABOVE:
        for run in choices(beside, rule).values():
            rules.setdefault(_named(run), []).append(rule)
    for each in chosen(runs, name):
        rules.setdefault((each.arm, _written(each.setting)), []).append(each.rule)
    groups = _grouped(runs, name, beside)
    told = [key for key in groups if key[0] in (GROUP_DRO, DFR)]
    rival = max(told, key=lambda key: _mean(groups[key], "worst group"))
    upper = next(key for key in groups if key[0] == UPPER)
    rows = []
    for key, by_seed in sorted(groups.items(), key=lambda pair: -_mean(pair[1], "worst group")):
        row = {"arm": key[0], "is told": LABELS[key[0]], "setting": key[1], "chosen by": ", ".join(rules.get(key, []))}
        row["seeds"] = str(len(by_seed))
        for column in ("accuracy", "accuracy without", "worst group"):
            row[column] = _cell([run[column] for run in by_seed.values()])
        row["worst group, less the rival's"] = (
            "the rival" if key == rival else _beside(by_seed, groups[rival], "worst group", WORST_GROUP_GOAL)
        )
        row["accuracy, less the upper bound's"] = (
            "" if key == upper else _beside(by_seed, groups[upper], "accuracy", IN_DISTRIBUTION_GOAL)
        )
        rows.append(row)
    return markdown(rows)


def _grouped(runs: Sequence[Run], name: str, beside: Sequence[Run]) -> dict[tuple[str, str], dict[int, Run]]:
    """By arm and setting the test runs of a task by seed."""
    groups: dict[tuple[str, str], dict[int, Run]] = {}
    for run in beside:
        if run["arm"] in (*BESIDE, GUIDED[name]) and not run["choosing"] and run["seed"] in SEEDS[name]:
            groups.setdefault(_named(run), {})[run["seed"]] = run
    for run in runs:
        if run["task"] == name and not run["choosing"]:
            setting = _written({each: run[each] for each in (SETTINGS.get(run["arm"]) or [{}])[0]})
            groups.setdefault((run["arm"], setting), {})[run["seed"]] = run
    return groups


def _beside(own: dict[int, Run], others: dict[int, Run], column: str, goal: float) -> str:
    """The difference over the seeds that both have, its 95 % interval, and whether all of that reaches the goal."""
    seeds = own.keys() & others.keys()
    if len(seeds) < LEAST_SEEDS:
        return ""
    return report.held_to([own[seed][column] - others[seed][column] for seed in sorted(seeds)], goal)


def choosing_table(runs: Sequence[Run], name: str) -> str:
    """A row per setting that there was to choose from: what the rules go by, on validation data with the shortcut."""
    tried = [run for run in runs if run["choosing"] and run["task"] == name]
    columns = ["accuracy", *RULES.values(), "reliance, fill", "accuracy, fill"]
    columns = [column for column in columns if all(column in run for run in tried)]
    rows = []
    for arm, settings in settings_of(name).items():
        for setting in settings:
            for run in tried:
                if run["arm"] == arm and setting.items() <= run.items():
                    cells = {column: f"{run[column]:.3f}" for column in columns}
                    rows.append({"arm": arm, "setting": _written(setting), **cells})
    return markdown(rows)


def _named(run: Run) -> tuple[str, str]:
    """What a run of the table above is called here: its group DRO is one setting of the tuned one."""
    if run["arm"] == "group DRO":
        return GROUP_DRO, _written({"step": Arm.group_step, "decay": Arm.weight_decay})
    return run["arm"], _written({"factor": run["weight"]} if run["weight"] else {})


def _cell(values: Sequence[float]) -> str:
    """Mean and interval; of fewer than three seeds, which have none worth the name, each value."""
    return report.shown(values) if len(values) >= LEAST_SEEDS else " / ".join(f"{value:.3f}" for value in values)


def _written(setting: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in setting.items())


def _mean(by_seed: dict[int, Run], column: str) -> float:
    return statistics.fmean(run[column] for run in by_seed.values())


def tables() -> dict[str, str]:
    """Text by mark."""
    runs = list(load(RESULTS).values())
    found = {f"goals, {name}": goals_table(runs, name, runs_above(name)) for name in benchmarks()}
    return found | {f"settings, {name}": choosing_table(runs, name) for name in benchmarks()}


def main() -> None:
    """Make the runs that are missing, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="of tweets, digits and things; else all")
    for name in parser.parse_args().tasks or benchmarks():
        # First what needs no choice, then what chooses, then what was chosen.
        for choosing in (False, True, False):
            complete(RESULTS, tasks_of(name, load(RESULTS).values(), choosing), train, 1)
    for mark, text in tables().items():
        write_between(HERE / "README.md", text, f"<!-- {mark} -->", f"<!-- end of {mark} -->")


if __name__ == "__main__":
    main()
