"""Which guidance changes what a model uses? See README.md.

    .venv/bin/python experiments/guidance/run.py costs images birds tweets movies

Every run is a line in `results/`; what was cut off goes on with what is missing.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import images  # noqa: E402
from arms import COMBINED, CONTROLS, PLAIN, SINGLE, UPPER, Task  # noqa: E402
from costs import cost  # noqa: E402
from results import CHOOSING_SEED, SEEDS, chosen_weight, complete, ranked  # noqa: E402

RESULTS = HERE / "results"
BEST = 3


def costs(_: int) -> None:
    """Measure what a step of every arm costs, on a machine that is idle."""
    found = {}
    for arm in (*CONTROLS, *SINGLE, *(f"{COMBINED}: {loss}" for loss in SINGLE if loss != "consistency")):
        name, _, loss = arm.partition(": ")
        found[arm] = round(cost(*images.prepared(Task(name, CHOOSING_SEED, images.MAIN), loss)), 2)
        print(arm, found[arm], flush=True)
    (RESULTS / "costs.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def cost_of(arm: str, best_map_loss: str = "") -> float:
    """As measured by `costs`."""
    found = json.loads((RESULTS / "costs.json").read_text(encoding="utf-8"))
    return found[f"{arm}: {best_map_loss}" if arm == COMBINED else arm]


def trained(task: Task, best_map_loss: str) -> dict[str, float]:
    """One run on digits, in a process of its own."""
    return images.train(task, cost_of(task.arm, best_map_loss), best_map_loss)


def chosen(workers: int) -> tuple[dict[str, float], str, list[str]]:
    """By the runs that serve to choose: the weight of every guided arm, the best loss on maps, the best arms."""
    path = RESULTS / "images.jsonl"
    tasks = [Task(arm, CHOOSING_SEED, images.MAIN, w, True) for arm, own in SINGLE.items() for w in own.weights]
    runs = list(complete(path, tasks, partial(trained, best_map_loss=""), workers).values())
    best_map_loss = ranked(runs, [arm for arm in SINGLE if arm != "consistency"])[0]
    weights = images.arm_of(COMBINED, best_map_loss).weights
    tasks = [Task(COMBINED, CHOOSING_SEED, images.MAIN, weight, True) for weight in weights]
    runs = list(complete(path, tasks, partial(trained, best_map_loss=best_map_loss), workers).values())
    guided = [*SINGLE, COMBINED]
    own = {arm: chosen_weight([run for run in runs if run["choosing"] and run["arm"] == arm]) for arm in guided}
    return own, best_map_loss, ranked(runs, guided)[:BEST]


def planted(workers: int) -> None:
    """All arms on the tag at a correlation of 0.98."""
    weights, best_map_loss, _ = chosen(workers)
    arms = [*CONTROLS, *SINGLE, COMBINED]
    tasks = [Task(arm, seed, images.MAIN, weights.get(arm, 0.0)) for seed in SEEDS for arm in arms]
    complete(RESULTS / "images.jsonl", tasks, partial(trained, best_map_loss=best_map_loss), workers)


def elsewhere(workers: int) -> None:
    """Plain training and the best three arms on other shortcuts and correlations."""
    weights, best_map_loss, best = chosen(workers)
    others = [setting for setting in images.SETTINGS if setting != images.MAIN]
    tasks = [Task(arm, seed, s, weights.get(arm, 0.0)) for seed in SEEDS for s in others for arm in (PLAIN, *best)]
    complete(RESULTS / "images.jsonl", tasks, partial(trained, best_map_loss=best_map_loss), workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables: dict[str, Callable[[int], object]] = {"costs": costs, "images": planted, "elsewhere": elsewhere}
    parser.add_argument("tables", nargs="*", choices=[*tables, []], default=[])
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    names: Sequence[str] = arguments.tables or list(tables)
    for name in names:
        tables[name](arguments.workers)


if __name__ == "__main__":
    main()
