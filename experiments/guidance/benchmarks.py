"""The tasks with a planted shortcut, as what a baseline needs of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from experiments.guidance import images, texts, things, tweets
from experiments.guidance.arms import Arm
from experiments.guidance.costs import read_costs
from experiments.guidance.fitting import Batch, Trained
from experiments.guidance.measures import accuracy, logits, reliance


@dataclass(frozen=True)
class Benchmark:
    """Data with a planted shortcut, and the model that is trained on them.

    Attributes:
        setting: What names its runs in the results.
        steps: Those of plain training.
        columns: Of a split, with a share of samples whose shortcut is that of their class (None: without shortcut), and
            a seed.
        module: With the weights of a seed, for an arm.
        batches: Of columns, drawn by weights, by a seed.
        logits: Of a network, for all samples.
        arm: Of the table above, by its name.
        costs: What a step of each of them costs, in steps of plain training.
    """

    setting: dict[str, Any]
    steps: int
    columns: Callable[[str, float | None, int], Batch]
    module: Callable[[int, Arm], Trained]
    batches: Callable[[Batch, Tensor, int], DataLoader]
    logits: Callable[[nn.Module, Batch], Tensor]
    arm: Callable[[str], Arm]
    costs: Callable[[], dict[str, float]]

    def judged(self, net: nn.Module, split: str, seed: int) -> dict[str, float]:
        """What a setting may be chosen by: accuracies on a split that has the shortcut as training has it.

        The worst class needs no label but the class; the worst group needs to be told the groups; reliance, of images,
        needs annotations.
        """
        shown = self.columns(split, self.setting["correlation"], seed)
        right = (self.logits(net, shown).argmax(1) == shown["label"]).double()
        found = reliance(net, shown["image"], shown["mask"], shown["label"]) if "mask" in shown else {}
        return {
            **found,
            "accuracy": right.mean().item(),
            "worst class": worst(right, shown["label"]),
            "worst known group": worst(right, shown["group"]),
        }

    def tested(self, net: nn.Module, seed: int) -> dict[str, float]:
        """What is reported: on the test split as in training, without the shortcut, and in the worst group."""
        found = {}
        kinds = {"accuracy": self.setting["correlation"], "accuracy without": None, "agreeing": 1.0, "conflicting": 0.0}
        for name, agreeing in kinds.items():
            columns = self.columns("test", agreeing, seed)
            found[name] = accuracy(self.logits(net, columns), columns["label"])
        return {**found, "worst group": min(found.pop("agreeing"), found.pop("conflicting"))}


def worst(right: Tensor, member: Tensor) -> float:
    """The lowest accuracy over the groups, or classes, that there are."""
    return min(right[member == each].mean().item() for each in member.unique())


def _digits(split: str, agreeing: float | None, seed: int) -> Batch:
    kind = "none" if agreeing is None else images.MAIN["shortcut"]
    return images.columns(images.digits(split, kind, 1.0 if agreeing is None else agreeing, seed))


def _digit_module(seed: int, arm: Arm) -> Trained:
    return Trained(images.network(seed), lambda batch: {"x": batch["image"]}, arm, images.LR)


@cache
def benchmarks() -> dict[str, Benchmark]:
    """By name. Things have no table of their own: arms and costs are those of the digits, on the same network."""
    return {
        "tweets": Benchmark(
            dict(tweets.MAIN),
            tweets.BUDGET,
            tweets.tweets,
            lambda seed, arm: texts.module(tweets.network(seed), arm, tweets.LR),
            lambda columns, weights, seed: texts.batches(columns, weights, tweets.BATCH, seed),
            texts.logits,
            tweets.ARMS.__getitem__,
            lambda: read_costs(tweets.RESULTS / "costs_tweets.json"),
        ),
        "digits": Benchmark(
            dict(images.MAIN),
            images.BUDGET,
            _digits,
            _digit_module,
            images.batches,
            lambda net, columns: logits(net, columns["image"]),
            images.arm_of,
            lambda: read_costs(tweets.RESULTS / "costs.json"),
        ),
        "things": Benchmark(
            {"correlation": things.CORRELATION},
            things.STEPS,
            things.columns,
            things.module,
            images.batches,
            lambda net, columns: logits(net, columns["image"]),
            images.arm_of,
            lambda: read_costs(tweets.RESULTS / "costs.json"),
        ),
    }


def with_few_annotations(columns: Batch, share: float, seed: int) -> tuple[Batch, Tensor]:
    """The columns with annotations on a share of the samples alone, and which samples these are."""
    name = "mask" if "mask" in columns else "rationale"
    count = len(columns["label"])
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    annotated = torch.zeros(count, dtype=torch.bool)
    annotated[order[: round(share * count)]] = True
    values = columns[name].clone()
    values[~annotated] = 255
    return {**columns, name: values}, annotated
