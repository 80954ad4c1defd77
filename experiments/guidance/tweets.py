"""A planted word in tweets that tells the label: data, one run, the whole table."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from experiments.guidance import texts
from experiments.guidance.arms import CONTROLS, SINGLE, WEIGHTS, Task, combined
from experiments.guidance.costs import cost, read_costs, write_costs
from experiments.guidance.fitting import Trained, fit, repair_last_layer
from experiments.guidance.results import CHOOSING_SEED, RULES, SEEDS, choices, complete
from experiments.guidance.texts import Texts
from experiments.minilm import network
from experiments.short_tweets import LENGTH, short_tweets, with_word
from lrptrain.data.common import stratified_split
from lrptrain.data.texts import Example

RESULTS = Path(__file__).resolve().parent / "results"
WORDS = ("census", "cubic")
"""Of negative and of positive tweets."""
BUDGET, BATCH, LR = 120, 16, 3e-4
"""Plain steps that every arm's compute is worth; the rate is the best of three for the upper bound."""
HELD_OUT, FOCUSED = 600, 64
MAIN = {"correlation": 0.98}
GUIDED = ("energy", "rationale_bce", "consistency")
COLUMNS = (
    "accuracy", "accuracy without", "worst group", "reliance, fill", "accuracy, fill", "reliance, swap",
    "EPG, generic_attention", "EPG, attnlrp",
)  # fmt: skip
ARMS = {**CONTROLS, **{name: SINGLE[name] for name in GUIDED}, "consistency + energy": combined("energy")}
ARMS["rationale_bce"] = replace(SINGLE["rationale_bce"], weights=(0.01, *WEIGHTS))  # at 0.1 the task is not learned


@cache
def pools() -> dict[str, list[Example]]:
    """Tweets for training, for choosing weights, and for the tables: the same for all seeds."""
    found = short_tweets()
    labels = [example.label for example in found]
    rest, test = stratified_split(labels, HELD_OUT / len(found), 0)
    train, val = stratified_split([labels[i] for i in rest], HELD_OUT / len(rest), 0)
    return {
        "train": [found[rest[i]] for i in train],
        "val": [found[rest[i]] for i in val],
        "test": [found[i] for i in test],
    }


def tweets(split: str, agreeing: float | None, seed: int) -> Texts:
    """A split's tweets, in so large a share with the word of their own class, the others with the other; or without."""
    examples = pools()[split]
    rng = np.random.default_rng([seed, ("train", "val", "test").index(split)])
    group = (rng.random(len(examples)) < (1.0 if agreeing is None else agreeing)).astype(int)
    if agreeing is not None:
        words = [WORDS[each.label if own else 1 - each.label] for each, own in zip(examples, group, strict=True)]
        examples = [with_word(each, word, rng) for each, word in zip(examples, words, strict=True)]
    return {**texts.encoded(examples, LENGTH), "group": torch.from_numpy(group)}


def prepared(task: Task) -> tuple[Trained, DataLoader]:
    """The model of a run, and its batches."""
    arm = ARMS[task.arm]
    torch.set_num_threads(1)
    data = tweets("train", None if arm.clean else task.setting["correlation"], task.seed)
    return texts.module(network(task.seed), arm, LR), texts.loader(data, arm, BATCH, task.seed)


def costs() -> None:
    """Measure what a step of every arm costs, on a machine that is idle."""
    found = {arm: round(cost(*prepared(Task(arm, CHOOSING_SEED, MAIN))), 2) for arm in ARMS}
    write_costs(RESULTS / "costs_tweets.json", found)


def train(task: Task) -> dict[str, float]:
    """One run: trained, then measured on the validation or the test tweets."""
    found = read_costs(RESULTS / "costs_tweets.json")
    module, batches = prepared(task)
    steps = round(BUDGET / found[task.arm])
    seconds = fit(module, batches, steps, task.weight, task.seed)
    held_out = tweets("val", task.setting["correlation"], task.seed)
    repair_last_layer(module.net, ARMS[task.arm], held_out, BATCH, task.seed)
    return {"steps": steps, "seconds": seconds} | measured(module.net, "val" if task.choosing else "test", task)


def measured(net: nn.Module, split: str, task: Task) -> dict[str, float]:
    """With the shortcut, and for the tables without it, too."""
    seen = tweets(split, task.setting["correlation"], task.seed)
    found = texts.reliance(net, seen)
    if task.choosing:
        return found
    for name, agreeing in {" without": None, ", agreeing": 1.0, ", conflicting": 0.0}.items():
        found[f"accuracy{name}"] = texts.right(net, tweets(split, agreeing, task.seed))
    found["worst group"] = min(found["accuracy, agreeing"], found["accuracy, conflicting"])
    return found | texts.focus(net, seen, FOCUSED)


def chosen(workers: int) -> dict[str, dict[str, float]]:
    """By each rule the weights of all guided arms, on runs that only serve to choose."""
    tasks = [Task(arm, CHOOSING_SEED, MAIN, weight, True) for arm, own in ARMS.items() for weight in own.weights]
    runs = list(complete(RESULTS / "tweets.jsonl", tasks, train, workers).values())
    return {rule: {arm: run["weight"] for arm, run in choices(runs, rule).items()} for rule in RULES}


def grid(workers: int) -> None:
    """All arms with five seeds, with the weights of both rules; what is missing of them."""
    weights = chosen(workers)
    pairs = dict.fromkeys((arm, own.get(arm, 0.0)) for own in weights.values() for arm in ARMS)
    complete(RESULTS / "tweets.jsonl", [Task(arm, seed, MAIN, w) for seed in SEEDS for arm, w in pairs], train, workers)
