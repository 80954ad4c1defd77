"""Can a weight destroy a model? Three decades of it, on five tasks.

`python -m experiments.guidance.decades` makes the runs that are missing, and writes the table into README.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from experiments.guidance import images, movies, texts, things, tweets
from experiments.guidance.arms import PLAIN, Arm, Task
from experiments.guidance.fitting import Trained, draw_weights, fit
from experiments.guidance.marked import SHUFFLED, marked_digits
from experiments.guidance.measures import accuracy, logits, reliance
from experiments.guidance.results import complete
from experiments.parallel import Run, load
from experiments.table import markdown, write_between
from lrptrain.intervention.statistics import swap_statistics, value_range

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "decades.jsonl"
MARKS = ("<!-- decades -->", "<!-- end of decades -->")
GUIDED = "consistency+energy"
LOSSES: dict[str, tuple[float, ...]] = {
    PLAIN: (0.0,),
    "swap": (0.1, 0.5, 1.0),
    GUIDED: (0.0, 0.1, 1.0, 10.0),
}
"""Weights by loss; 0 is the default, bounded by the task's gradient. That of `swap` is a share: it ends at 1."""
SEED = 0
COLUMNS = ("accuracy", "accuracy, swap", "accuracy without")
TINT = 0.95
"""The correlation of a tint, which needs no annotation."""


@dataclass(frozen=True)
class Kind:
    """A task.

    Attributes:
        steps: As many for every arm: the question is what a weight does to a run, not what its compute is worth.
        prepared: The model of an arm and a seed, and its batches.
        measured: Of a network and a seed the columns that there are.
        options: Of the guidance, beside its loss.
        guided: What stands for `consistency+energy` where there is no annotation.
    """

    steps: int
    prepared: Callable[[Arm, int], tuple[Trained, DataLoader]]
    measured: Callable[[nn.Module, int], dict[str, float]]
    options: dict[str, Any] = field(default_factory=dict)
    guided: str = GUIDED


def train(task: Task) -> dict[str, Any]:
    """Train one model, and measure it with the shortcut, under a swap of the surroundings, and without the shortcut."""
    torch.set_num_threads(1)
    kind = KINDS[task.setting["task"]]
    loss = kind.guided if task.arm == GUIDED else task.arm
    module, loader = kind.prepared(Arm() if task.arm == PLAIN else Arm({"loss": loss, **kind.options}), task.seed)
    seconds = fit(module, loader, kind.steps, task.weight, task.seed)
    found = kind.measured(module.net, task.seed)
    return {"seconds": seconds, **{name: found[name] for name in COLUMNS if name in found}}


def _digits(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    data = images.digits("train", **images.MAIN, seed=seed)
    module = Trained(images.network(seed), lambda batch: {"x": batch["image"]}, arm, images.LR)
    return module, images.loader(data, arm, seed)


def _tweets(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    columns = tweets.tweets("train", tweets.MAIN["correlation"], seed)
    return texts.module(tweets.network(seed), arm, tweets.LR), texts.loader(columns, arm, tweets.BATCH, seed)


def _things(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    columns = things.columns("train", things.CORRELATION, seed)
    return things.module(seed, arm), images.batches(columns, draw_weights(columns, arm), seed)


def _measured_things(net: nn.Module, seed: int) -> dict[str, float]:
    seen, without = (things.columns("test", agreeing, seed) for agreeing in (things.CORRELATION, None))
    return {
        "accuracy": accuracy(logits(net, seen["image"]), seen["label"]),
        **reliance(net, seen["image"], seen["mask"], seen["label"]),
        "accuracy without": accuracy(logits(net, without["image"]), without["label"]),
    }


def _tinted(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    columns = marked_digits("train", {"tint": TINT}, images.SIZE, seed)
    del columns["mask"]
    module = Trained(images.network(seed), lambda batch: {"x": batch["image"]}, arm, images.LR)
    return module, images.batches(columns, draw_weights(columns, arm), seed)


def _measured_tinted(net: nn.Module, seed: int) -> dict[str, float]:
    """Colours and contrast swapped instead of surroundings; a tint of any class instead of none."""
    seen, shuffled = (marked_digits("test", {"tint": tint}, images.SIZE, seed) for tint in (TINT, SHUFFLED))
    image = seen["image"]
    donors = image[torch.randperm(len(image), generator=torch.Generator().manual_seed(0))]
    swapped = swap_statistics(image, donors, value_range(list(image)))
    return {
        "accuracy": accuracy(logits(net, image), seen["label"]),
        "accuracy, swap": accuracy(logits(net, swapped), seen["label"]),
        "accuracy without": accuracy(logits(net, shuffled["image"]), shuffled["label"]),
    }


def _movies(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    columns = movies.few(movies.SIZES[-1]["documents"], seed)
    return texts.module(movies.started(), arm, movies.LR), texts.loader(columns, arm, movies.BATCH, seed)


def _measured_movies(net: nn.Module, _: int) -> dict[str, float]:
    """Nothing is planted."""
    return texts.reliance(net, texts.encoded(movies.documents()["test"], movies.LENGTH))


KINDS = {
    "digits": Kind(160, _digits, lambda net, seed: images.measured(net, "test", Task("", seed, dict(images.MAIN)))),
    "tweets": Kind(120, _tweets, lambda net, seed: tweets.measured(net, "test", Task("", seed, dict(tweets.MAIN)))),
    "tinted digits": Kind(160, _tinted, _measured_tinted, {"swap": "statistics"}, "consistency"),
    "things": Kind(60, _things, _measured_things),
    "reviews": Kind(movies.BUDGET, _movies, _measured_movies),
}


def table(runs: Sequence[Run]) -> str:
    """A row per loss and weight, three accuracies per task."""
    rows = []
    for loss, weights in LOSSES.items():
        for weight in weights:
            row = {"loss": loss, "weight": "" if loss == PLAIN else f"{weight:g}" if weight else "default"}
            for kind in KINDS:
                cells = [
                    " / ".join(f"{run[name]:.3f}" for name in COLUMNS if name in run)
                    for run in runs
                    if (run["arm"], run["weight"], run["task"]) == (loss, weight, kind)
                ]
                row[kind] = cells[0] if cells else ""
            rows.append(row)
    return markdown(rows)


def main() -> None:
    """Make the runs that are missing, and write the table."""
    tasks = [
        Task(loss, SEED, {"task": kind}, weight)
        for kind in KINDS
        for loss, weights in LOSSES.items()
        for weight in weights
    ]
    complete(RESULTS, tasks, train, 1)
    write_between(HERE / "README.md", table(list(load(RESULTS).values())), *MARKS)


if __name__ == "__main__":
    main()
