"""Last-layer repair: a trained model keeps its features, and its last layer weighs them anew.

A network that reads a shortcut has often learned the right features, too, and only weighs them less (Kirichenko et al.
2023, "Last layer re-training is sufficient for robustness to spurious correlations"). They balance groups, which needs
to be told which sample has the shortcut. Samples with swapped surroundings need annotations in its place, of some
hundred samples, and no name for the shortcut; those with swapped colours, light, detail or edges need neither.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.auditing.brought import device_of, logits_model
from lrptrain.auditing.samples import draw_samples
from lrptrain.batch import IMAGES, BatchAdapter, Sample, batched
from lrptrain.batch.task import OneLabel, Regression, Task, TaskName, find_task
from lrptrain.relevance.preserve import unwrap
from lrptrain.repairing.balance import GROUPS, SWAPPED, Balance, Swaps, is_annotated, swapped_batches, weights_by
from lrptrain.repairing.erasure import erase
from lrptrain.repairing.fitting import LinearFit, Table, choose_penalty, fit, folds_of
from lrptrain.repairing.last_layer import LastLayer, find_last_layer, read_features
from lrptrain.repairing.predictions import lowest_accuracy
from lrptrain.trainers.checks import check_counts

How = Literal["retrain", "erase"]
FEWEST = 20
"""Fewer samples than this are refused: a last layer has more numbers than they could fix."""
AS_THEY_ARE = "as they are"
WORST_CLASS = "worst class"
WORST_GROUP = "worst group"
OF_OTHERS: dict[Balance, str] = {
    "surroundings": "with other surroundings",
    "statistics": "with other colours",
    "detail": "with other fine detail",
    "shading": "with other light",
    "edges": "with other edges",
}
"""What an accuracy is of, by what samples were given of others."""


@dataclass(frozen=True)
class Repair:
    """A last layer that weighs its features anew, and what it is worth. `apply` puts it into the model.

    Attributes:
        layer: The attribute path of the layer on the module that gives logits.
        weight: The layer's new weight.
        bias: Its new bias; None where it has none.
        balance: What tells nothing of the class in the samples that it was made from.
        samples: How many samples these were.
        penalty: The inverse strength of the L2 penalty that was chosen; None of a layer that was not trained.
        before: Accuracies of the old layer, by what they are of.
        after: Those of new layers on samples that these were not made from, in folds.
        how: Whether it was trained anew, or the shortcut erased from what it reads.
    """

    layer: str
    weight: Float[Tensor, "classes width"]
    bias: Float[Tensor, " classes"] | None
    balance: Balance
    samples: int
    penalty: float | None
    before: dict[str, float]
    after: dict[str, float]
    how: How = "retrain"

    def apply(self, model: nn.Module) -> None:
        """Put the new layer into the model, or the LightningModule, that was repaired."""
        layer = unwrap(logits_model(model)).get_submodule(self.layer)
        assert isinstance(layer, nn.Linear)
        with torch.no_grad():
            layer.weight.copy_(self.weight)
            if self.bias is not None:
                layer.bias.copy_(self.bias)

    def __str__(self) -> str:
        """Return a table of accuracies before and after."""
        width = max(map(len, self.before)) + 2
        rows = [
            f"  {name:{width}}{100 * self.before[name]:6.1f} %{100 * self.after[name]:8.1f} %" for name in self.before
        ]
        return "\n".join(
            [
                self._made(),
                f"  {'accuracy':{width}}{'before':>8}{'after':>10}",
                *rows,
                "  After: by layers that were not made from the samples they are measured on.",
            ]
        )

    def _made(self) -> str:
        """Return how the layer was made, in a sentence."""
        if self.how == "erase":
            shortcut = "groups" if self.balance == GROUPS else f"others' {self.balance}"
            return f"What tells {shortcut} apart, erased from the last layer {self.layer!r} by {self.samples} samples."
        kind = "with all groups of each class alike" if self.balance == GROUPS else f"with the {self.balance} of others"
        return f"The last layer {self.layer!r}, trained anew on {self.samples} samples {kind}."


def repair(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    balance: Balance | None = None,
    how: How = "retrain",
    copies: int = 5,
    max_samples: int = 512,
    batch_size: int = 32,
    margin: int | None = None,
    seed: int = 0,
    batch_adapter: BatchAdapter | None = None,
    task: TaskName | Task | None = None,
) -> Repair:
    """Make the last layer of a model anew, by samples in which the shortcut tells nothing of the class.

    `repaired = lrptrain.repair(model, val_loader)`, `print(repaired)`, `repaired.apply(model)`: the model is not
    changed before the last. Take samples that it was not trained on: on those it was, it is sure of everything, by
    whatever feature.

    Args:
        model: A LightningModule, or any classifier, whose logits are the output of a linear layer.
        loader: Batches as the callbacks read them, with labels, and perhaps with annotations or groups.
        balance: "surroundings": each sample is given the surroundings of others, which needs annotations; "groups":
            all groups count alike in each class, which needs the samples' `group`: that of the shortcut alone, or of
            shortcut and class; "statistics" (colour and contrast), "detail", "shading" or "edges": each image is given
            that of others, which needs neither, and mends what a finding of that name flags. None for surroundings
            where there are annotations, else groups.
        how: "retrain": a logistic regression on these samples; "erase": the old layer, without all that a linear
            classifier could tell the groups, or the class of who gave, by: it forgets, and learns nothing new.
        copies: How often each sample is given something of another.
        max_samples: How many samples of the loader are taken, as evenly over the classes as they allow.
        batch_size: Samples per forward pass, among which they are swapped.
        margin: Pixels or tokens around the evidence that stay; None for 0.
        seed: The seed of samples, swaps and folds.
        batch_adapter: Function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so; see `lrptrain.audit`.

    Returns:
        The new layer, with accuracies before and after.

    Raises:
        ValueError: If there are too few samples, a class has fewer than two, or no linear layer makes the logits.
    """
    network = logits_model(model)
    meaning = find_task(task, network)
    samples = draw_labelled(loader, max_samples, seed, batch_adapter, meaning)
    return repair_samples(
        network, samples, balance=balance, how=how, swaps=Swaps(copies, batch_size, margin, seed), task=meaning
    )


def repair_samples(
    model: nn.Module, samples: Sequence[Sample], *, balance: Balance | None, how: How, swaps: Swaps, task: Task
) -> Repair:
    """Make the last layer anew from samples that were drawn; see `repair`.

    Raises:
        ValueError: As `repair`.
    """
    if balance not in (None, *get_args(Balance)):
        raise ValueError(f"balance must be {listed(get_args(Balance))}, not {balance!r}")
    if how not in get_args(How):
        raise ValueError(f"how must be {listed(get_args(How))}, not {how!r}")
    usable, kind = _usable(samples, balance)
    features = read_tables(model, usable, [kind], swaps, task)
    return features.repaired(how, kind, features.measured([AS_THEY_ARE]))


class Measured(NamedTuple):
    """What an accuracy is of.

    Attributes:
        title: Its name.
        table: The samples.
        part: The class or group of each row, of which the lowest accuracy counts; None for the accuracy of all rows.
    """

    title: str
    table: Table
    part: Int[np.ndarray, " rows"] | None = None

    def accuracy(self, predicted: Int[np.ndarray, " rows"]) -> float:
        """Return the accuracy of predictions."""
        right = predicted == self.table.label
        if self.part is None:
            return float(right.mean())
        return lowest_accuracy(right, self.part)


@dataclass(frozen=True)
class Tables:
    """What a last layer is given for samples as they are, and for those in which the shortcut tells nothing.

    Attributes:
        layer: The last layer.
        rows: Its rows that tell the classes.
        samples: How many samples there are.
        as_they_are: The samples.
        balanced: By the name of the balance, what a layer is made from.
        seed: The seed of the folds.
    """

    layer: LastLayer
    rows: Sequence[int]
    samples: int
    as_they_are: Table
    balanced: dict[Balance, Table]
    seed: int

    def measured(self, titles: Sequence[str]) -> list[Measured]:
        """Return what accuracies are of: those that are named, and one for each balance."""
        label = self.as_they_are.label
        parts = {AS_THEY_ARE: None, WORST_CLASS: label}
        of_balance = [
            Measured(WORST_GROUP, self.as_they_are, group_of(table))
            if balance == GROUPS
            else Measured(OF_OTHERS[balance], table)
            for balance, table in self.balanced.items()
        ]
        return [Measured(title, self.as_they_are, parts[title]) for title in titles] + of_balance

    def repaired(self, how: How, balance: Balance, measured: Sequence[Measured]) -> Repair:
        """Return a new last layer, and what it is worth.

        Args:
            how: See `repair`.
            balance: One of those that there are.
            measured: What accuracies are of.
        """
        made_from = self.balanced[balance]
        with_bias = self.layer.module.bias is not None
        folds = folds_of(made_from, self.seed)
        penalty = choose_penalty(made_from, folds, with_bias) if how == "retrain" else None
        old = _old_fit(self.layer, self.rows)

        def new_layer(table: Table) -> LinearFit:
            return erase(table, old, with_bias) if penalty is None else fit(table, penalty, with_bias)

        fitted = [new_layer(made_from.rows(~held_out)) for held_out in folds]
        held_out_samples = [np.unique(made_from.sample[held_out]) for held_out in folds]
        weight, bias = _as_layer(self.layer, self.rows, new_layer(made_from))
        return Repair(
            layer=self.layer.name,
            weight=weight,
            bias=bias,
            balance=balance,
            samples=self.samples,
            penalty=penalty,
            before={each.title: each.accuracy(old.predict(each.table.features)) for each in measured},
            after={each.title: each.accuracy(_out_of_fold(each.table, held_out_samples, fitted)) for each in measured},
            how=how,
        )


def read_tables(
    model: nn.Module, samples: Sequence[Sample], balances: Sequence[Balance], swaps: Swaps, task: Task
) -> Tables:
    """Return what the last layer is given for samples.

    Args:
        model: The model, which is left as it was.
        samples: Samples that all of the balances can use.
        balances: What is to tell nothing.
        swaps: How something is swapped between samples.
        task: What output and labels mean.

    Raises:
        ValueError: As `repair`.
    """
    if isinstance(task, Regression):
        raise ValueError("a last layer is made anew for classes, and this model's task is a regression")
    check_counts(copies=swaps.copies, batch_size=swaps.batch_size)
    if swaps.batch_size < 2 and set(balances) & SWAPPED.keys():
        raise ValueError("batch_size must be at least 2, as what is swapped comes from other samples of a batch")
    batches = batched(samples, swaps.batch_size, device_of(model))
    layer = find_last_layer(model, batches[0])
    rows = [task.column] if isinstance(task, OneLabel) else list(range(layer.module.out_features))
    label = np.array([sample.label for sample in samples])
    _check_classes(label, len(rows))
    index = np.arange(len(label))
    as_they_are = Table(read_features(model, layer, batches), label, weights_by(label), index, label)
    tables = {
        each: _with_groups_alike(as_they_are, samples)
        if each == GROUPS
        else _with_swaps(model, layer, samples, each, swaps)
        for each in balances
    }
    return Tables(layer, rows, len(samples), as_they_are, tables, swaps.seed)


def group_of(table: Table) -> Int[np.ndarray, " rows"]:
    """Return a number for each pair of a class and a group.

    A background, or a scanner, tells the class until it is as frequent in each of them: so groups are those of a class,
    whether the samples' `group` says so or not.
    """
    pairs = np.stack([table.shortcut, table.label], 1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


def _with_groups_alike(as_they_are: Table, samples: Sequence[Sample]) -> Table:
    """Return the samples with weights by which all groups of a class count alike."""
    table = replace(as_they_are, shortcut=np.array([sample.group for sample in samples]))
    return replace(table, weight=weights_by(group_of(table)))


def draw_labelled(
    loader: Iterable[Any], max_samples: int, seed: int, batch_adapter: BatchAdapter | None, task: Task
) -> list[Sample]:
    """Return samples of a loader.

    Raises:
        ValueError: If there is none.
    """
    check_counts(max_samples=max_samples)
    try:
        return draw_samples(loader, max_samples, seed, batch_adapter, task)
    except LookupError as error:
        raise ValueError(str(error)) from error


def listed(names: Sequence[str]) -> str:
    """Return names as "'a', 'b' or 'c'"."""
    quoted = [repr(name) for name in names]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _usable(drawn: Sequence[Sample], balance: Balance | None) -> tuple[list[Sample], Balance]:
    """Return the samples that the balance can use, and which balance it is.

    Raises:
        ValueError: If these are too few.
    """
    if balance is None:
        balance = "surroundings" if _usable_for("surroundings", drawn) or not _usable_for(GROUPS, drawn) else GROUPS
    samples = _usable_for(balance, drawn)
    if len(samples) < FEWEST:
        hint = ""
        if any(set(sample.tensors) & set(IMAGES) for sample in drawn) and NEEDED[balance] != OF_IMAGES:
            hint = "; balance='statistics', 'detail', 'shading' or 'edges' need neither annotation nor group"
        raise ValueError(
            f"{len(samples)} of {len(drawn)} samples have a label and {NEEDED[balance]}: a last layer is made anew "
            f"from at least {FEWEST}, and max_samples says how many are drawn{hint}"
        )
    if balance == GROUPS and len({sample.group for sample in samples}) < 2:
        raise ValueError("all samples are of one group: there is nothing to balance")
    return samples, balance


OF_IMAGES = "an image"
NEEDED: dict[Balance, str] = {
    **dict.fromkeys(SWAPPED, OF_IMAGES),
    "surroundings": "an annotation (mask, boxes or rationale)",
    GROUPS: "a `group`",
}
"""What a balance needs of a sample beside its label."""


def is_usable(sample: Sample, balance: Balance) -> bool:
    """Return whether a sample has what a balance needs, and a label."""
    if sample.label < 0:
        return False
    if balance == GROUPS:
        return sample.group is not None
    return is_annotated(sample) if balance == "surroundings" else bool(set(sample.tensors) & set(IMAGES))


def _usable_for(balance: Balance, drawn: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in drawn if is_usable(sample, balance)]


def _check_classes(label: Int[np.ndarray, " samples"], rows: int) -> None:
    """Reject samples that lack a class: its row would be trained on what it is not.

    Raises:
        ValueError: With the classes.
    """
    classes = max(rows, 2)  # one logit tells two classes apart
    missing = sorted(set(range(classes)) - set(label.tolist()))
    beyond = sorted(set(label.tolist()) - set(range(classes)))
    if beyond:
        raise ValueError(f"label {beyond[0]} is no class of a model with {classes} classes")
    if missing:
        listed = ", ".join(map(str, missing[:10]))
        raise ValueError(f"no usable sample is of class {listed}: the last layer cannot be made anew without")


def _with_swaps(model: nn.Module, layer: LastLayer, samples: Sequence[Sample], balance: Balance, swaps: Swaps) -> Table:
    """Return every sample as often as it is given something of another."""
    generator = torch.Generator().manual_seed(swaps.seed)
    features = []
    indices = []
    givers = []
    for _ in range(swaps.copies):
        for rows, donors, batch in swapped_batches(samples, balance, swaps, device_of(model), generator):
            indices.append(rows)
            givers.append(donors)
            features.append(read_features(model, layer, [batch]))
    index = np.concatenate(indices)
    classes = np.array([sample.label for sample in samples])
    label = classes[index]
    return Table(np.concatenate(features), label, weights_by(label), index, classes[np.concatenate(givers)])


def _old_fit(layer: LastLayer, rows: Sequence[int]) -> LinearFit:
    """Return the layer as it is, as a classifier."""
    weight = layer.module.weight.detach().double().cpu().numpy()[rows]
    if layer.module.bias is None:
        return LinearFit(weight, np.zeros(len(weight)))
    return LinearFit(weight, layer.module.bias.detach().double().cpu().numpy()[rows])


def _out_of_fold(
    table: Table, held_out_samples: Sequence[Int[np.ndarray, " samples"]], fitted: Sequence[LinearFit]
) -> Int[np.ndarray, " rows"]:
    """Return the class of each row, by the fit that was not trained on its sample."""
    predicted = np.empty(len(table.label), dtype=int)
    for samples, each in zip(held_out_samples, fitted, strict=True):
        rows = np.isin(table.sample, samples)
        predicted[rows] = each.predict(table.features[rows])
    return predicted


def _as_layer(layer: LastLayer, rows: Sequence[int], fitted: LinearFit) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of the layer with the rows of a fit."""
    weight = layer.module.weight.detach().clone()
    bias = None if layer.module.bias is None else layer.module.bias.detach().clone()
    new_weight = torch.from_numpy(np.ascontiguousarray(fitted.weight)).to(weight)
    new_bias = torch.from_numpy(np.ascontiguousarray(fitted.bias)).to(weight)
    if len(rows) == 2 and len(new_weight) == 1:
        # A softmax over -z / 2 and z / 2 is the sigmoid of z.
        new_weight = torch.cat([-new_weight / 2, new_weight / 2])
        new_bias = torch.cat([-new_bias / 2, new_bias / 2])
    weight[rows] = new_weight
    if bias is not None:
        bias[rows] = new_bias
    return weight, bias
