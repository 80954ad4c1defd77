"""Which guidance changes what a model uses? See README.md.

    .venv/bin/python -m experiments.guidance.run costs images tweets

Every run is a line in `results/`; what was cut off goes on with what is missing.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from experiments.guidance import images, report, tweets
from experiments.guidance.arms import COMBINED, CONTROLS, FULL, PLAIN, SINGLE, Task
from experiments.guidance.costs import cost, read_costs, write_costs
from experiments.guidance.results import CHOOSING_SEED, RULES, SEEDS, choices, complete
from experiments.parallel import Run, load
from experiments.table import write_between

HERE = Path(__file__).resolve().parent

RESULTS = HERE / "results"
BEST, BEST_FILLED = 3, 6
"""Arms that are trained on other shortcuts; arms that are trained with the weight of the second rule, too."""


def costs(_: int) -> None:
    """Measure what a step of every arm costs, on a machine that is idle."""
    tweets.costs()
    found = {}
    for arm in (*CONTROLS, *SINGLE, *(COMBINED + loss for loss in SINGLE if loss != "consistency")):
        found[arm] = round(cost(*images.prepared(Task(arm, CHOOSING_SEED, images.MAIN))), 2)
        print(arm, found[arm], flush=True)
    write_costs(RESULTS / "costs.json", found)


def trained(task: Task) -> dict[str, float]:
    """One run on digits, in a process of its own."""
    found = read_costs(RESULTS / "costs.json")
    return images.train(task, 1.0 if task.arm.endswith(FULL) else found[task.arm])


def chosen(workers: int) -> dict[str, dict[str, float]]:
    """By each rule the weights of all guided arms, the best first, on runs that only serve to choose.

    `consistency` is combined with the best other loss by each rule.
    """
    path = RESULTS / "images.jsonl"

    def tried(arms: Sequence[str]) -> None:
        tasks = [Task(arm, CHOOSING_SEED, images.MAIN, w, True) for arm in arms for w in images.arm_of(arm).weights]
        complete(path, tasks, trained, workers)

    tried(list(SINGLE))
    alone = [run for run in load(path).values() if run["arm"] in SINGLE]
    best = [next(arm for arm in weights if arm != "consistency") for weights in by_rule(alone).values()]
    pairs = [COMBINED + loss for loss in dict.fromkeys(best)]
    tried(pairs)
    return by_rule([run for run in load(path).values() if run["arm"] in (*SINGLE, *pairs)])


def by_rule(runs: Iterable[Run]) -> dict[str, dict[str, float]]:
    """Weight by arm, the best arm first, by each rule."""
    runs = list(runs)
    return {rule: {arm: run["weight"] for arm, run in choices(runs, rule).items()} for rule in RULES}


def planted(workers: int) -> None:
    """All arms on the tag at a correlation of 0.98; the best ones of the second rule with its weights, too.

    And the very best once more with as many steps as plain training: is it the guidance or the compute?
    """
    first, second = chosen(workers).values()
    arms = [(arm, 0.0) for arm in CONTROLS] + list(first.items())
    arms += [pair for pair in list(second.items())[:BEST_FILLED] if pair not in arms]
    arms += [(arm + FULL, weight) for arm, weight in list(second.items())[:1]]
    tasks = [Task(arm, seed, images.MAIN, weight) for seed in SEEDS for arm, weight in arms]
    complete(RESULTS / "images.jsonl", tasks, trained, workers)


def elsewhere(workers: int) -> None:
    """Plain training and the best three arms, by the second rule, on other shortcuts and correlations."""
    best = list(chosen(workers)["best filled"].items())[:BEST]
    others = [setting for setting in images.SETTINGS if setting != images.MAIN]
    tasks = [Task(arm, seed, s, weight) for seed in SEEDS for s in others for arm, weight in [(PLAIN, 0.0), *best]]
    complete(RESULTS / "images.jsonl", tasks, trained, workers)


def tables() -> dict[str, str]:
    """Text of every table that has runs, by its mark in README.md."""
    runs = {name: list(load(RESULTS / f"{name}.jsonl").values()) for name in ("images", "tweets")}
    main = [run for run in runs["images"] if all(run[name] == x for name, x in images.MAIN.items())]
    texts: dict[str, Callable[[], str]] = {
        "images": lambda: report.arms_table(main, report.COLUMNS, by_rule(main)),
        "choosing": lambda: report.choosing_table(main),
        "elsewhere": lambda: report.settings_table(runs["images"], [s for s in images.SETTINGS if s != images.MAIN]),
        "tweets": lambda: report.arms_table(runs["tweets"], tweets.COLUMNS, by_rule(runs["tweets"])),
    }
    return {name: text() for name, text in texts.items() if runs.get(name, main)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps: dict[str, Callable[[int], object]] = {
        "costs": costs,
        "images": planted,
        "tweets": tweets.grid,
        "elsewhere": elsewhere,
    }
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(steps)}; else all whose costs are measured")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    names: Sequence[str] = arguments.tables or [name for name in steps if name != "costs"]
    for name in names:
        steps[name](arguments.workers)
    for name, text in tables().items():
        write_between(HERE / "README.md", text, f"<!-- {name} -->", f"<!-- end of {name} -->")


if __name__ == "__main__":
    main()
