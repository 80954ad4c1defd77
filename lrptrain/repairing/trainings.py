"""Trained models beside each other, on a user's own samples: plain, guided, by group DRO, mended."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from lrptrain.auditing.brought import device_of, logits_model
from lrptrain.batch import BatchAdapter, Sample, batched
from lrptrain.batch.task import Regression, Task, TaskName, find_task
from lrptrain.repairing.balance import GROUPS, Balance, Swaps, swapped_batches
from lrptrain.repairing.comparison import BY_DEFAULT, check_balances, lacking, usable_for
from lrptrain.repairing.predictions import accuracy_table, lowest_accuracy, not_compared_lines, predicted_classes
from lrptrain.repairing.repair import AS_THEY_ARE, FEWEST, NEEDED, OF_OTHERS, WORST_CLASS, WORST_GROUP, draw_labelled
from lrptrain.trainers.checks import check_counts


@dataclass(frozen=True)
class ModelComparison:
    """Models, measured alike.

    Attributes:
        accuracies: By the name of the model, and then by what they are of, such as "as they are" and "worst group".
        samples: How many samples they were measured on.
        not_compared: By the name of a balance, why nothing was measured of it.
    """

    accuracies: Mapping[str, Mapping[str, float]]
    samples: int
    not_compared: Mapping[str, str]

    def __str__(self) -> str:
        """Return a table: a row per model, a column per accuracy."""
        head = f"Accuracies of {len(self.accuracies)} models on the same {self.samples} samples."
        return "\n".join([head, "", *accuracy_table(self.accuracies), *not_compared_lines(self.not_compared)])


def compare_models(
    models: Mapping[str, nn.Module],
    loader: Iterable[Any],
    *,
    balances: Sequence[Balance] | None = None,
    copies: int = 5,
    max_samples: int = 512,
    batch_size: int = 32,
    margin: int | None = None,
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
            given the surroundings, the colours and so on, of others. None for surroundings and groups, as far as
            samples have annotations and groups.
        copies: How often each sample is given something of another.
        max_samples: How many samples of the loader are taken, as evenly over the classes as they allow.
        batch_size: Samples per forward pass, among which they are swapped.
        margin: Pixels or tokens around the evidence that stay; None for 0.
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
    if isinstance(meaning, Regression):
        raise ValueError("accuracies are those of classes, and this task is a regression")
    check_balances(balances)
    check_counts(copies=copies, batch_size=batch_size)
    samples = [each for each in draw_labelled(loader, max_samples, seed, batch_adapter, meaning) if each.label >= 0]
    usable = usable_for(samples, BY_DEFAULT if balances is None else balances)
    not_compared = {} if balances else lacking(samples, usable)
    compared = [each for each in usable if each not in not_compared]
    common = [samples[i] for i in sorted(set(range(len(samples))).intersection(*(usable[each] for each in compared)))]
    if len(common) < FEWEST:
        needed = " and ".join(["a label", *(NEEDED[each] for each in compared)])
        raise ValueError(f"{len(common)} samples have {needed}: models are compared on at least {FEWEST}")
    swaps = Swaps(copies, batch_size, margin, seed)
    accuracies = {name: _measured(model, common, compared, swaps, meaning) for name, model in networks.items()}
    return ModelComparison(accuracies, len(common), not_compared)


def _measured(
    model: nn.Module, samples: Sequence[Sample], balances: Sequence[Balance], swaps: Swaps, task: Task
) -> dict[str, float]:
    """Return the accuracies of a model, by what they are of."""
    device = device_of(model)
    label = np.array([sample.label for sample in samples])
    right = predicted_classes(model, batched(samples, swaps.batch_size, device), task) == label
    accuracies = {AS_THEY_ARE: float(right.mean()), WORST_CLASS: lowest_accuracy(right, label)}
    for balance in balances:
        if balance == GROUPS:
            pairs = np.stack([np.array([sample.group for sample in samples]), label], 1)
            accuracies[WORST_GROUP] = lowest_accuracy(
                right, np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
            )
        else:
            accuracies[OF_OTHERS[balance]] = _accuracy_swapped(model, samples, label, balance, swaps, device, task)
    return accuracies


def _accuracy_swapped(
    model: nn.Module,
    samples: Sequence[Sample],
    label: np.ndarray,
    balance: Balance,
    swaps: Swaps,
    device: torch.device,
    task: Task,
) -> float:
    """Return the accuracy on samples that are given something of others."""
    generator = torch.Generator().manual_seed(swaps.seed)
    right = [
        predicted_classes(model, [swapped.batch], task) == label[swapped.rows]
        for _ in range(swaps.copies)
        for swapped in swapped_batches(samples, balance, swaps, device, generator)
    ]
    return float(np.concatenate(right).mean())
