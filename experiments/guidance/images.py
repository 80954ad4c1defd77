"""Planted shortcuts on digits: data, model, one run."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset, WeightedRandomSampler

from experiments.data import dataset
from experiments.guidance.arms import COMBINED, CONTROLS, FULL, SINGLE, Arm, Task, combined
from experiments.guidance.fitting import Trained, draw_weights, fit, repair_last_layer
from experiments.guidance.measures import accuracy, focus, logits, reliance
from experiments.vision import MEAN, STD, vit
from lrptrain.data.common import stratified_split
from lrptrain.data.planted import digit_strokes, planted_digits

SIZE, DIGIT, BLOCKS, TRAIN, HELD_OUT = 24, 20, 3, 4800, 600
BUDGET, BATCH, LR = 320, 32, 3e-3
"""Plain steps that every arm's compute is worth."""
FOCUSED = 256
"""Held-out images whose maps are scored."""
SETTINGS = [{"shortcut": s, "correlation": c} for s in ("tag", "background", "both") for c in (0.9, 0.98, 1.0)]
MAIN = {"shortcut": "tag", "correlation": 0.98}


@dataclass(frozen=True)
class Digits:
    """Images, normalised, with masks, labels and groups (1 where the shortcut agrees with the class)."""

    image: Tensor
    mask: Tensor
    label: Tensor
    group: Tensor


def pools() -> dict[str, np.ndarray]:
    """Which of the 1,797 digits are for training, for choosing weights, and for the tables: the same for all seeds."""
    _, labels = digit_strokes(8)
    rest, test = stratified_split(labels, 0.25, 0)
    train, val = stratified_split(labels[rest], 0.25, 0)
    return {"train": rest[train], "val": rest[val], "test": test}


def digits(split: str, shortcut: str, correlation: float, seed: int) -> Digits:
    """A split's digits in images drawn by a seed."""
    strokes, labels = digit_strokes(DIGIT)
    number = ("train", "val", "test").index(split)
    chosen = np.random.default_rng([seed, number]).choice(pools()[split], TRAIN if split == "train" else HELD_OUT)
    found = planted_digits(strokes[chosen], labels[chosen], shortcut, correlation, SIZE, 3 * seed + number)
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (MEAN, STD))
    image, mask, label, group = (torch.from_numpy(found[key]) for key in ("image", "mask", "label", "group"))
    return Digits((image - mean) / std, mask, label, group)


def network(seed: int, size: int = SIZE) -> nn.Module:
    """The first three blocks of the small pre-trained ViT."""
    torch.manual_seed(seed)
    net = vit(10, size, dataset("vit"))
    net.blocks = net.blocks[:BLOCKS]
    return net


def arm_of(name: str) -> Arm:
    """By its name in the table."""
    name, everything = name.removesuffix(FULL), {**CONTROLS, **SINGLE}
    return everything[name] if name in everything else combined(name.removeprefix(COMBINED))


def columns(data: Digits) -> dict[str, Tensor]:
    """The columns of its batches."""
    return {"image": data.image, "mask": data.mask, "label": data.label, "group": data.group}


def loader(data: Digits, arm: Arm, seed: int) -> DataLoader:
    """Random batches; of both groups alike for group DRO."""
    return batches(columns(data), draw_weights(columns(data), arm), seed)


def batches(columns: dict[str, Tensor], weights: Tensor, seed: int) -> DataLoader:
    """Random batches, drawn by weights."""
    dataset: StackDataset = StackDataset(**columns)
    sampler = WeightedRandomSampler(weights, 100 * len(weights), generator=torch.Generator().manual_seed(seed))
    return DataLoader(dataset, BATCH, sampler=sampler)


def prepared(task: Task) -> tuple[Trained, DataLoader]:
    """The model of a run, and its batches."""
    arm = arm_of(task.arm)
    torch.set_num_threads(1)
    data = digits("train", "none" if arm.clean else task.setting["shortcut"], task.setting["correlation"], task.seed)
    module = Trained(network(task.seed), lambda batch: {"x": batch["image"]}, arm, LR)
    return module, loader(data, arm, task.seed)


def train(task: Task, cost: float) -> dict[str, float]:
    """One run: trained, then measured on the validation or the test digits."""
    module, batches = prepared(task)
    steps = round(BUDGET / cost)
    seconds = fit(module, batches, steps, task.weight, task.seed)
    held_out = digits("val", task.setting["shortcut"], task.setting["correlation"], task.seed)
    repair_last_layer(module.net, arm_of(task.arm), columns(held_out), BATCH, task.seed)
    found = {"steps": steps, "seconds": seconds}
    return found | measured(module.net, "val" if task.choosing else "test", task)


def measured(net: nn.Module, split: str, task: Task) -> dict[str, float]:
    """With the shortcut, and for the tables without it, too."""
    shortcut, correlation = task.setting["shortcut"], task.setting["correlation"]
    seen = digits(split, shortcut, correlation, task.seed)
    found = {
        "accuracy": accuracy(logits(net, seen.image), seen.label),
        **reliance(net, seen.image, seen.mask, seen.label),
    }
    if task.choosing:
        return found
    for name, (kind, agreeing) in {
        "accuracy without": ("none", 1.0),
        "accuracy, agreeing": (shortcut, 1.0),
        "accuracy, conflicting": (shortcut, 0.0),
    }.items():
        data = digits(split, kind, agreeing, task.seed)
        found[name] = accuracy(logits(net, data.image), data.label)
    found["worst group"] = min(found["accuracy, agreeing"], found["accuracy, conflicting"])
    return found | focus(net, *(x[:FOCUSED] for x in (seen.image, seen.label, seen.mask)))
