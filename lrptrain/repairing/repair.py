"""Last-layer repair: a trained model keeps its features, and its last layer weighs them anew.

A network that reads a shortcut has often learned the right features, too, and only weighs them less (Kirichenko et al.
2023, "Last layer re-training is sufficient for robustness to spurious correlations"). They balance groups, which needs
to be told which sample has the shortcut. Samples with swapped surroundings need annotations in its place, of some
hundred samples, and no name for the shortcut; those with swapped colours, light, detail or edges need neither.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.auditing.brought import device_of, logits_model
from lrptrain.auditing.samples import draw_samples
from lrptrain.batch import IMAGES, BatchAdapter, Sample, batched
from lrptrain.batch.task import OneLabel, Ordinal, Regression, Task, TaskName, find_task
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.repairing.balance import (
    GROUPS,
    SWAPPED,
    Balance,
    Swaps,
    exchanged_batches,
    is_annotated,
    swapped_batches,
    weights_by,
)
from lrptrain.repairing.erasure import erase
from lrptrain.repairing.fitting import CrossValidation, LinearFit, Table, fit, folds_of
from lrptrain.repairing.last_layer import LastLayer, find_last_layer, read_features
from lrptrain.repairing.predictions import lowest_accuracy
from lrptrain.terminal import WIDTH
from lrptrain.trainers.checks import check_counts

How = Literal["retrain", "erase"]
NOT_TESTED = (
    "Not tested: samples that come without the shortcut. An exchange leaves traces, such as the outline of what is "
    "pasted, and a layer can learn to read those."
)
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
NOUNS: dict[Balance, str] = {
    "surroundings": "surroundings",
    "statistics": "colours",
    "detail": "fine detail",
    "shading": "light",
    "edges": "edges",
}
_95 = 1.96
"""Standard errors within which a mean lies with 95 %."""


def same_class(balance: Balance) -> str:
    """Return what the accuracy is of that is the control: of samples with something of their own class."""
    return f"with the same class's {NOUNS[balance]}"


def other_class(balance: Balance) -> str:
    """Return what the accuracy is of that the control is for: of samples with something of another class."""
    return f"with another class's {NOUNS[balance]}"


class Reliance(NamedTuple):
    """How much accuracy an exchange with another class costs, beyond one with the same class, in -1..1.

    Attributes:
        before: Of the old layer.
        after: Of new layers, on samples and donors that these were not made from.
        error_before: Half of the 95 % interval of `before`, over samples.
        error_after: The same of `after`.
        error_change: The same of their difference.
        samples: How many samples were exchanged.
    """

    before: float
    after: float
    error_before: float
    error_after: float
    error_change: float
    samples: int

    @property
    def is_significant(self) -> bool:
        """Whether it differs before and after by more than samples do by chance."""
        return abs(self.before - self.after) > self.error_change


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
        reliance: What an exchange with another class costs before and after; None where groups are balanced, or where
            too few samples could be exchanged.
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
    reliance: Reliance | None = None

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
                *(f"  {line}" for line in self._judgement()),
            ]
        )

    def _judgement(self) -> list[str]:
        """Return what the numbers say, how they were made, and what they do not say, in lines."""
        lines = ["After: by layers made from other samples than those that they are measured on."]
        if self.balance == GROUPS:
            return [*lines, "Not tested: groups that these samples lack."]
        lines += filled(self._exchange())
        return [*lines, *filled(NOT_TESTED)]

    def _exchange(self) -> str:
        """Return what an exchange with another class costs, in a sentence or two."""
        if self.reliance is None:
            return f"Not tested: whether it reads another class's {NOUNS[self.balance]}: too few samples of a class."
        of, noun = self.reliance, NOUNS[self.balance]
        before, after = (
            f"{100 * mean:.1f} ± {100 * error:.1f}"
            for mean, error in ((of.before, of.error_before), (of.after, of.error_after))
        )
        verdict = "" if of.is_significant else " That is no significant difference."
        return (
            f"Another class's {noun} instead of the same class's: {before} points of accuracy lost before, {after} "
            f"after (n = {of.samples}, 95 % intervals).{verdict}"
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
        seed: The seed of samples, swaps and folds.
        batch_adapter: Function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so; see `lrptrain.audit`.

    Returns:
        The new layer, with accuracies before and after, and what an exchange with another class costs beyond one with
        the same class.

    Raises:
        ValueError: If there are too few samples, a class has fewer than two, or no linear layer makes the logits.
    """
    network = logits_model(model)
    meaning = find_task(task, network)
    samples = draw_labelled(loader, max_samples, seed, batch_adapter, meaning)
    return repair_samples(
        network, samples, balance=balance, how=how, swaps=Swaps(copies, batch_size, seed), task=meaning
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
        folds: The indices of the samples of each fold.
        exchanged: By the name of the balance, samples with something of their own class, the control, and the same
            samples with that of another class; none without any sample that can be exchanged.
    """

    layer: LastLayer
    rows: Sequence[int]
    samples: int
    as_they_are: Table
    balanced: dict[Balance, Table]
    folds: Sequence[Int[np.ndarray, " samples"]]
    exchanged: dict[Balance, tuple[Table, Table]]

    def measured(self, titles: Sequence[str]) -> list[Measured]:
        """Return what accuracies are of: those that are named, and for each balance those that judge it."""
        label = self.as_they_are.label
        parts = {AS_THEY_ARE: None, WORST_CLASS: label}
        measured = [Measured(title, self.as_they_are, parts[title]) for title in titles]
        for balance, table in self.balanced.items():
            if balance == GROUPS:
                measured.append(Measured(WORST_GROUP, self.as_they_are, group_of(table)))
            elif balance in self.exchanged:
                same, other = self.exchanged[balance]
                measured += [Measured(same_class(balance), same), Measured(other_class(balance), other)]
        return measured

    def repaired(self, how: How, balance: Balance, measured: Sequence[Measured]) -> Repair:
        """Return a new last layer, and what it is worth.

        Args:
            how: See `repair`.
            balance: One of those that there are.
            measured: What accuracies are of.
        """
        made_from = self.balanced[balance]
        with_bias = self.layer.module.bias is not None
        folds = [np.isin(made_from.sample, fold) for fold in self.folds]
        old = _old_fit(self.layer, self.rows)
        penalty = None
        if how == "retrain":
            # What is held out has no say in the penalty, either.
            validation = CrossValidation(made_from, folds, with_bias)
            penalty = validation.penalty()
            fitted = [validation.fitted(validation.penalty(fold), fold) for fold in range(len(folds))]
            new = fit(made_from, penalty, with_bias)
        else:
            fitted = [erase(made_from.rows(~held_out), old, with_bias) for held_out in folds]
            new = erase(made_from, old, with_bias)

        def predict(table: Table) -> Int[np.ndarray, " rows"]:
            return _out_of_fold(table, self.folds, fitted)

        weight, bias = _as_layer(self.layer, self.rows, new)
        return Repair(
            layer=self.layer.name,
            weight=weight,
            bias=bias,
            balance=balance,
            samples=self.samples,
            penalty=penalty,
            before={each.title: each.accuracy(old.predict(each.table.features)) for each in measured},
            after={each.title: each.accuracy(predict(each.table)) for each in measured},
            how=how,
            reliance=self._reliance(balance, lambda table: old.predict(table.features), predict),
        )

    def _reliance(
        self,
        balance: Balance,
        before: Callable[[Table], Int[np.ndarray, " rows"]],
        after: Callable[[Table], Int[np.ndarray, " rows"]],
    ) -> Reliance | None:
        """Return what an exchange with another class costs by the predictions before and after."""
        if balance not in self.exchanged:
            return None
        same, other = self.exchanged[balance]
        lost = np.stack(
            [
                (predict(same) == same.label).astype(float) - (predict(other) == other.label)
                for predict in (before, after)
            ]
        )
        of_each = np.stack([*lost, lost[0] - lost[1]])  # [before, after and their difference, samples]
        errors = _95 * of_each.std(1, ddof=1) / np.sqrt(of_each.shape[1])
        return Reliance(
            before=float(lost[0].mean()),
            after=float(lost[1].mean()),
            error_before=float(errors[0]),
            error_after=float(errors[1]),
            error_change=float(errors[2]),
            samples=of_each.shape[1],
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
    if isinstance(task, (Ordinal, Regression)):
        raise ValueError(f"a last layer is made anew for classes, and this model's task is {task.name}")
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
    folds = [np.flatnonzero(fold) for fold in folds_of(as_they_are, swaps.seed)]
    exchanged = {each: _exchanged(model, layer, samples, folds, each, swaps) for each in balances if each != GROUPS}
    return Tables(layer, rows, len(samples), as_they_are, tables, folds, {k: v for k, v in exchanged.items() if v})


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
    return draw_samples(loader, max_samples, seed, batch_adapter, task)


def filled(text: str) -> list[str]:
    """Return a text in lines that fit below a table."""
    return textwrap.wrap(text, WIDTH - 2)


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


def _exchanged(
    model: nn.Module,
    layer: LastLayer,
    samples: Sequence[Sample],
    folds: Sequence[Int[np.ndarray, " samples"]],
    balance: Balance,
    swaps: Swaps,
) -> tuple[Table, Table] | None:
    """Return samples with something of their own class, and with that of another; None where fewer than two can be."""
    index: list[int] = []
    features: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for batch in exchanged_batches(samples, folds, balance, swaps, device_of(model)):
        index += batch.rows.tolist()
        for part, given in zip(features, (batch.same, batch.other), strict=True):
            part.append(read_features(model, layer, [given]))
    if len(index) < 2:
        return None
    label = np.array([samples[i].label for i in index])
    same, other = (Table(np.concatenate(part), label, np.ones(len(index)), np.array(index), label) for part in features)
    return same, other


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
