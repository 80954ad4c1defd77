"""Trained models beside each other, on a user's own samples: plain, guided, by group DRO, mended."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from lrptrain.auditing.samples import draw_samples
from lrptrain.batch import BatchAdapter, Sample, batched
from lrptrain.batch.task import Regression, Task, TaskName, find_task
from lrptrain.guidance.swap_names import OUTSIDE, known_name
from lrptrain.repairing.balance import (
    FEWEST,
    GROUPS,
    NAMES,
    Swaps,
    groups_of,
    is_usable,
    needed,
    noun,
    swapped_batches,
)
from lrptrain.repairing.predictions import predicted_classes
from lrptrain.repairing.repair import AS_THEY_ARE, WORST_GROUP
from lrptrain.terminal import WIDTH
from lrptrain.trainers.checks import check_counts
from lrptrain.trainers.discover import device_of, logits_model

COLUMN = 14

WORST_CLASS = "worst class"
RESAMPLES = 2000
"""So often the samples are drawn anew for an interval."""


class Interval(NamedTuple):
    """Where a difference of two accuracies lies, -1..1, with a confidence of 95 %."""

    low: float
    high: float


class _Answers(NamedTuple):
    """What an accuracy is of.

    Attributes:
        right: The share of right answers to each sample, 0..1: of one answer, or of several where it was changed.
        part: The class, or the group, that each sample belongs to, where the accuracy is that of the worst; else None.
    """

    right: Float[np.ndarray, " samples"]
    part: Int[np.ndarray, " samples"] | None = None

    def accuracies(self, counts: Float[np.ndarray, "draws samples"]) -> Float[np.ndarray, " draws"]:
        """Return the accuracy of all, or the lowest of a part, where each sample counts so often.

        A part of which a draw has no sample is left out of it.
        """
        if self.part is None:
            return (counts @ self.right) / counts.sum(1)
        member = (self.part[:, None] == np.unique(self.part)).astype(float)
        sizes = counts @ member
        right = counts @ (self.right[:, None] * member)
        return np.where(sizes > 0, right / np.maximum(sizes, 1), np.inf).min(1)

    def accuracy(self) -> float:
        """Return the accuracy of all, or the lowest of a part."""
        return float(self.accuracies(np.ones((1, len(self.right))))[0])


@dataclass(frozen=True)
class ModelComparison:
    """Models, measured alike.

    Attributes:
        accuracies: By the name of the model, and then by what they are of, such as "as they are" and "worst group".
        samples: How many samples they were measured on.
        not_compared: By what would be exchanged, or "groups", why nothing was measured of it.
        above_first: By the name of every model but the first, and then as in `accuracies`: how far it lies above the
            first one. Both are measured on the same samples, which are drawn anew (a bootstrap over pairs); what
            another training would give is not in it.
    """

    accuracies: Mapping[str, Mapping[str, float]]
    samples: int
    not_compared: Mapping[str, str]
    above_first: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return a table: a row per model, a column per accuracy; below it how surely each is above the first one."""
        head = f"Accuracies of {len(self.accuracies)} models on the same {self.samples} samples."
        first = next(iter(self.accuracies))
        differences = [f"In points above {first!r}, with 95 % intervals over samples:", "", *self._difference_lines()]
        return "\n".join(
            [
                head,
                "",
                *_accuracy_table(self.accuracies),
                *(["", *differences] if self.above_first else []),
                *_not_compared_lines(self.not_compared),
            ]
        )

    def _difference_lines(self) -> list[str]:
        width = max(map(len, self.accuracies)) + 2
        return [
            f"{name:{width}}" + "".join(f"{_points(interval):>{COLUMN}}" for interval in of_row.values())
            for name, of_row in self.above_first.items()
        ]


def _points(interval: Interval) -> str:
    """Return an interval in percentage points, such as "+1 to +12"."""
    return f"{100 * interval.low:+.0f} to {100 * interval.high:+.0f}"


def _accuracy_table(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return lines: a head, and a row of accuracies in per cent by its name."""
    width = max(map(len, rows)) + 2
    heads = [textwrap.wrap(title, COLUMN - 2) for title in next(iter(rows.values()))]
    height = max(map(len, heads))
    stacked = [[""] * (height - len(head)) + head for head in heads]
    header = [
        (" " * width + "".join(f"{line:>{COLUMN}}" for line in lines)).rstrip() for lines in zip(*stacked, strict=True)
    ]
    return header + [
        f"{name:{width}}" + "".join(f"{100 * value:{COLUMN - 2}.1f} %" for value in of_row.values())
        for name, of_row in rows.items()
    ]


def _not_compared_lines(reasons: Mapping[str, str]) -> list[str]:
    """Return what was not compared, and why, below an empty line; no line if all was."""
    notes = [textwrap.fill(f"Not compared: {name} ({reason}).", WIDTH) for name, reason in reasons.items()]
    return ["", *notes] if notes else []


def compare_models(
    models: Mapping[str, nn.Module],
    loader: Iterable[Any],
    *,
    balances: Sequence[str] | None = None,
    copies: int = 5,
    max_samples: int = 512,
    batch_size: int = 32,
    seed: int = 0,
    batch_adapter: BatchAdapter | None = None,
    task: TaskName | Task | None = None,
) -> ModelComparison:
    """Measure several trained models on the same samples: as they are, and where a shortcut tells nothing.

    `print(lrptrain.compare_models({"plain": plain, "swap": guided, "group DRO": robust}, loader))`.

    Args:
        models: By their names, the models, or LightningModules, of one task.
        loader: Batches as the callbacks read them, with labels, and perhaps annotations and groups; of samples that no
            model was trained on.
        balances: What is measured beside the accuracy of all samples and that of the worst class: "groups" is the worst
            group, of class and `group` together; the others of `lrptrain.repair` are accuracies on samples that are
            given the surroundings, the colour and so on, of others. None for surroundings and groups, as far as
            samples have annotations and groups.
        copies: How often each sample is given something of another.
        max_samples: How many samples of the loader are taken, as evenly over the classes as they allow.
        batch_size: Samples per forward pass, among which they are swapped.
        seed: The seed of samples and swaps.
        batch_adapter: Function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so; see `lrptrain.audit`.

    Raises:
        ValueError: If there is no model, or too few samples have all that is to be measured.
    """
    if not models:
        raise ValueError("compare_models takes models by their names: {'plain': model, ...}")
    networks = {name: logits_model(model) for name, model in models.items()}
    meaning = find_task(task, next(iter(networks.values())))
    check_counts(copies=copies, max_samples=max_samples, batch_size=batch_size)
    if isinstance(meaning, Regression):
        raise ValueError("accuracies are those of classes, and this task is a regression")
    if balances is not None and not balances:
        raise ValueError(f"balances are some of {', '.join(NAMES)}; None for those that the samples allow")
    drawn = draw_samples(loader, max_samples, seed, batch_adapter, meaning)
    samples = [each for each in drawn if each.label >= 0]
    swaps = Swaps(copies, batch_size, seed)
    named = [known_name(each, "balance", NAMES) for each in balances or (OUTSIDE, GROUPS)]
    not_compared = {} if balances else {noun(each): lack for each in named if (lack := _lack(samples, each))}
    compared = [each for each in named if noun(each) not in not_compared]
    common = [sample for sample in samples if all(is_usable(sample, each) for each in compared)]
    if len(common) < FEWEST:
        listed = " and ".join(["a label", *map(needed, compared)])
        raise ValueError(f"{len(common)} samples have {listed}: models are compared on at least {FEWEST}")
    answers = {name: _answers(model, common, compared, swaps, meaning) for name, model in networks.items()}
    accuracies = {name: {what: each.accuracy() for what, each in of.items()} for name, of in answers.items()}
    first, *others = answers
    above_first = {name: _above(answers[name], answers[first], swaps.seed) for name in others}
    return ModelComparison(accuracies, len(common), not_compared, above_first)


def _lack(samples: Sequence[Sample], balance: str) -> str:
    """Return what samples lack for a balance; "" for nothing."""
    usable = [sample for sample in samples if is_usable(sample, balance)]
    if len(usable) < FEWEST:
        return f"fewer than {FEWEST} samples have {needed(balance)}"
    return "all samples are of one group" if balance == GROUPS and len({each.group for each in usable}) < 2 else ""


def _above(answers: Mapping[str, _Answers], of_first: Mapping[str, _Answers], seed: int) -> dict[str, Interval]:
    """Return how far the accuracies of a model lie above those of the first, on samples that are drawn anew."""
    count = len(next(iter(answers.values())).right)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(float)
    intervals = {}
    for what, each in answers.items():
        differences = each.accuracies(drawn) - of_first[what].accuracies(drawn)
        intervals[what] = Interval(*map(float, np.percentile(differences, (2.5, 97.5))))
    return intervals


def _answers(
    model: nn.Module, samples: Sequence[Sample], balances: Sequence[str], swaps: Swaps, task: Task
) -> dict[str, _Answers]:
    """Return which answers of a model are right, by what the accuracies are of."""
    device = device_of(model)
    label = np.array([sample.label for sample in samples])
    right = (predicted_classes(model, batched(samples, swaps.batch_size, device), task) == label).astype(float)
    answers = {AS_THEY_ARE: _Answers(right), WORST_CLASS: _Answers(right, label)}
    for balance in balances:
        if balance == GROUPS:
            answers[WORST_GROUP] = _Answers(right, groups_of(samples))
        else:
            changed = _right_when_swapped(model, samples, label, balance, swaps, task)
            answers[f"with other {noun(balance)}"] = _Answers(changed)
    return answers


def _right_when_swapped(
    model: nn.Module, samples: Sequence[Sample], label: np.ndarray, balance: str, swaps: Swaps, task: Task
) -> Float[np.ndarray, " samples"]:
    """Return the share of right answers to each sample that is given something of others."""
    generator = torch.Generator().manual_seed(swaps.seed)
    right = np.zeros(len(samples))
    for _ in range(swaps.copies):
        for swapped in swapped_batches(samples, balance, swaps, device_of(model), generator):
            right[swapped.rows] += predicted_classes(model, [swapped.batch], task) == label[swapped.rows]
    return right / swaps.copies
