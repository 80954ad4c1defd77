"""Can a weight destroy a model? Three decades of it, on digits and on tweets.

`python -m experiments.guidance.decades` makes the runs that are missing, and writes the table into README.md.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.command import no_options
from experiments.guidance import images, texts, tweets
from experiments.guidance.arms import PLAIN, Arm, Task
from experiments.guidance.fitting import Trained, fit
from experiments.guidance.results import complete
from experiments.parallel import Run, load
from experiments.table import markdown, write_between

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "decades.jsonl"
MARKS = ("<!-- decades -->", "<!-- end of decades -->")
LOSSES: dict[str, tuple[float, ...]] = {
    PLAIN: (0.0,),
    "swap": (0.1, 0.5, 1.0),
    "consistency+energy": (0.0, 0.1, 1.0, 10.0),
}
"""Weights by loss; 0 is the default, bounded by the task's gradient. That of `swap` is a share: it ends at 1."""
DIGITS, TWEETS = "digits", "tweets"
STEPS = {DIGITS: 160, TWEETS: 120}
"""As many for every arm: the question is what a weight does to a run, not what its compute is worth."""
SEED = 0
COLUMNS = ("accuracy", "accuracy, swap", "accuracy without")


def train(task: Task) -> dict[str, Any]:
    """Train one model, and measure it with the shortcut, under a swap of the surroundings, and without the shortcut."""
    arm = Arm() if task.arm == PLAIN else Arm({"loss": task.arm})
    kind = task.setting["task"]
    if kind == TWEETS:
        columns = tweets.tweets("train", tweets.MAIN["correlation"], task.seed)
        module = texts.module(tweets.network(task.seed), arm, tweets.LR)
        loader = texts.loader(columns, arm, tweets.BATCH, task.seed)
    else:
        data = images.digits("train", **images.MAIN, seed=task.seed)
        module = Trained(images.network(task.seed), lambda batch: {"x": batch["image"]}, arm, images.LR)
        loader = images.loader(data, arm, task.seed)
    seconds = fit(module, loader, STEPS[kind], task.weight, task.seed)
    measured = tweets.measured if kind == TWEETS else images.measured
    setting = tweets.MAIN if kind == TWEETS else images.MAIN
    found = measured(module.net, "test", Task(task.arm, task.seed, dict(setting), task.weight))
    return {"seconds": seconds, **{name: found[name] for name in COLUMNS}}


def table(runs: Sequence[Run]) -> str:
    """A row per loss and weight, three accuracies per task."""
    rows = []
    for loss, weights in LOSSES.items():
        for weight in weights:
            row = {"loss": loss, "weight": "" if loss == PLAIN else f"{weight:g}" if weight else "default"}
            for kind in STEPS:
                cells = [
                    " / ".join(f"{run[name]:.3f}" for name in COLUMNS)
                    for run in runs
                    if (run["arm"], run["weight"], run["task"]) == (loss, weight, kind)
                ]
                row[kind] = cells[0] if cells else ""
            rows.append(row)
    return markdown(rows)


def main() -> None:
    """Make the runs that are missing, and write the table."""
    no_options(__doc__)
    tasks = [
        Task(loss, SEED, {"task": kind}, weight)
        for kind in STEPS
        for loss, weights in LOSSES.items()
        for weight in weights
    ]
    complete(RESULTS, tasks, train, 1)
    write_between(HERE / "README.md", table(list(load(RESULTS).values())), *MARKS)


if __name__ == "__main__":
    main()
