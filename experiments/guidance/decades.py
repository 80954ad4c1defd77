"""Can a weight destroy a model? Three decades of it, on five tasks: three of images, two of texts.

`python -m experiments.guidance.decades` makes the runs that are missing, and writes the table into README.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from experiments.command import no_options
from experiments.guidance import images, texts, things, tweets
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
"""The share of the digits that are tinted in the colour of their own class."""


@dataclass(frozen=True)
class Kind:
    """What a model is trained on, and how it is measured.

    Attributes:
        steps: As many for every arm: the question is what a weight does to a run, not what its compute is worth.
        prepared: The model of an arm and a seed, and its batches.
        measured: The columns of a network and a seed, those that the task has.
        options: Arguments of the guidance beside its loss.
        guided_loss: What is trained in the rows of `consistency+energy`; energy needs an annotation.
    """

    steps: int
    prepared: Callable[[Arm, int], tuple[Trained, DataLoader]]
    measured: Callable[[nn.Module, int], dict[str, float]]
    options: dict[str, Any] = field(default_factory=dict)
    guided_loss: str = GUIDED


def train(task: Task) -> dict[str, Any]:
    """Train one model, and measure it with the shortcut, under a swap, and without the shortcut."""
    torch.set_num_threads(1)
    kind = KINDS[task.setting["task"]]
    module, loader = kind.prepared(_arm(kind, task.arm), task.seed)
    seconds = fit(module, loader, kind.steps, task.weight, task.seed)
    measured = kind.measured(module.net, task.seed)
    return {"seconds": seconds, **{name: measured[name] for name in COLUMNS if name in measured}}


def _arm(kind: Kind, name: str) -> Arm:
    if name == PLAIN:
        return Arm()
    return Arm({"loss": kind.guided_loss if name == GUIDED else name, **kind.options})


def _digits(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    data = images.digits("train", **images.MAIN, seed=seed)
    return _small_vit(arm, seed), images.loader(data, arm, seed)


def _tinted(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    """Without annotations: the colours are swapped instead of the surroundings."""
    columns = marked_digits("train", {"tint": TINT}, images.SIZE, seed)
    del columns["mask"]
    return _small_vit(arm, seed), images.batches(columns, draw_weights(columns, arm), seed)


def _small_vit(arm: Arm, seed: int) -> Trained:
    return Trained(images.network(seed), lambda batch: {"x": batch["image"]}, arm, images.LR)


def _things(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    columns = things.columns("train", things.CORRELATION, seed)
    return things.module(seed, arm), images.batches(columns, draw_weights(columns, arm), seed)


def _tweets(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    columns = tweets.tweets("train", tweets.MAIN["correlation"], seed)
    return texts.module(tweets.network(seed), arm, tweets.LR), texts.loader(columns, arm, tweets.BATCH, seed)


def _plain_tweets(arm: Arm, seed: int) -> tuple[Trained, DataLoader]:
    """Nothing planted; in float32, as bfloat16 takes many times as long on processors without instructions for it."""
    columns = tweets.tweets("train", None, seed)
    module = Trained(tweets.network(seed), texts.inputs, arm, tweets.LR)
    return module, texts.loader(columns, arm, tweets.BATCH, seed)


def _measured_digits(net: nn.Module, seed: int) -> dict[str, float]:
    return images.measured(net, "test", Task(PLAIN, seed, dict(images.MAIN)))


def _measured_tinted(net: nn.Module, seed: int) -> dict[str, float]:
    """Under a swap of colours and contrast; "without" is with a tint of any class, as a digit without is new to it."""
    seen = marked_digits("test", {"tint": TINT}, images.SIZE, seed)
    shuffled = marked_digits("test", {"tint": SHUFFLED}, images.SIZE, seed)
    image = seen["image"]
    donors = image[torch.randperm(len(image), generator=torch.Generator().manual_seed(0))]
    swapped = swap_statistics(image, donors, value_range(list(image)))
    return {
        "accuracy": accuracy(logits(net, image), seen["label"]),
        "accuracy, swap": accuracy(logits(net, swapped), seen["label"]),
        "accuracy without": accuracy(logits(net, shuffled["image"]), shuffled["label"]),
    }


def _measured_things(net: nn.Module, seed: int) -> dict[str, float]:
    seen = things.columns("test", things.CORRELATION, seed)
    without = things.columns("test", None, seed)
    return {
        "accuracy": accuracy(logits(net, seen["image"]), seen["label"]),
        **reliance(net, seen["image"], seen["mask"], seen["label"]),
        "accuracy without": accuracy(logits(net, without["image"]), without["label"]),
    }


def _measured_tweets(net: nn.Module, seed: int) -> dict[str, float]:
    return tweets.measured(net, "test", Task(PLAIN, seed, dict(tweets.MAIN)))


def _measured_plain_tweets(net: nn.Module, seed: int) -> dict[str, float]:
    """Without a column for what is without a shortcut: all are."""
    return texts.reliance(net, tweets.tweets("test", None, seed), mixed=False)


KINDS = {
    "digits": Kind(160, _digits, _measured_digits),
    "tinted digits": Kind(160, _tinted, _measured_tinted, {"swap": "colour"}, "consistency"),
    "things": Kind(60, _things, _measured_things),
    "tweets": Kind(120, _tweets, _measured_tweets),
    "tweets, nothing planted": Kind(120, _plain_tweets, _measured_plain_tweets),
}


def table(runs: Sequence[Run]) -> str:
    """A row per loss and weight, the accuracies of each task in a cell."""
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
    no_options(__doc__)
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
