"""Last-layer retraining: a trained model keeps its features, and its last layer learns anew which of them to use.

A network that reads a shortcut has often learned the right features, too, and only weighs them less (Kirichenko et al.
2023, "Last layer re-training is sufficient for robustness to spurious correlations"). They balance groups, which needs
to be told which sample has the shortcut. Samples with swapped surroundings need annotations in its place, of some
hundred samples, and no name for the shortcut.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.auditing.brought import device_of, logits_model
from lrptrain.auditing.samples import draw_samples
from lrptrain.batch import BatchAdapter, Sample, batched
from lrptrain.batch.task import OneLabel, Regression, Task, TaskName, find_task
from lrptrain.relevance.preserve import unwrap
from lrptrain.repairing.balance import annotated, swapped_batches, weights_by
from lrptrain.repairing.fitting import LinearFit, Table, choose_penalty, fit, folds_of
from lrptrain.repairing.last_layer import LastLayer, find_last_layer, read_features
from lrptrain.trainers.checks import check_counts

Balance = Literal["surroundings", "groups"]
FEWEST = 20
"""Fewer samples than this are refused: a last layer has more numbers than they could fix."""
AS_THEY_ARE = "as they are"
SWAPPED = "with other surroundings"
WORST_GROUP = "worst group"


@dataclass(frozen=True)
class Repair:
    """A last layer that was trained anew, and what it is worth. `apply` puts it into the model.

    Attributes:
        layer: The attribute path of the layer on the module that gives logits.
        weight: The layer's new weight.
        bias: Its new bias; None where it has none.
        balance: What tells nothing of the class in the samples that it was trained on.
        samples: How many samples these were.
        penalty: The inverse strength of the L2 penalty that was chosen.
        before: Accuracies of the old layer, by what they are of.
        after: Those of new layers on samples that these were not trained on, in folds.
    """

    layer: str
    weight: Float[Tensor, "classes width"]
    bias: Float[Tensor, " classes"] | None
    balance: Balance
    samples: int
    penalty: float
    before: dict[str, float]
    after: dict[str, float]

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
        kind = (
            "with the surroundings of others"
            if self.balance == "surroundings"
            else "with all groups of each class alike"
        )
        return "\n".join(
            [
                f"The last layer {self.layer!r}, trained anew on {self.samples} samples {kind}.",
                f"  {'accuracy':{width}}{'before':>8}{'after':>10}",
                *rows,
                "  After: by layers that were not trained on the samples they are measured on.",
            ]
        )


def repair(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    balance: Balance | None = None,
    copies: int = 5,
    max_samples: int = 512,
    batch_size: int = 32,
    margin: int | None = None,
    seed: int = 0,
    batch_adapter: BatchAdapter | None = None,
    task: TaskName | Task | None = None,
) -> Repair:
    """Train the last layer of a model anew, on samples in which the shortcut tells nothing of the class.

    `repaired = lrptrain.repair(model, val_loader)`, `print(repaired)`, `repaired.apply(model)`: the model is not
    changed before the last. Take samples that it was not trained on: on those it was, it is sure of everything, by
    whatever feature.

    Args:
        model: A LightningModule, or any classifier, whose logits are the output of a linear layer.
        loader: Batches as the callbacks read them, with labels, and with annotations or groups.
        balance: "surroundings": each sample is given the surroundings of others, which needs annotations; "groups":
            all groups count alike in each class, which needs the samples' `group`: that of the shortcut alone, or of
            shortcut and class. None for surroundings where there are annotations, else groups.
        copies: How many other surroundings each sample is given.
        max_samples: How many samples of the loader are taken, as evenly over the classes as they allow.
        batch_size: Samples per forward pass, among which surroundings are swapped.
        margin: Pixels or tokens around the evidence that stay; None for 0.
        seed: The seed of samples, swaps and folds.
        batch_adapter: Function that brings a batch of another form to the names of the contract.
        task: What output and labels mean, where they do not say so; see `lrptrain.audit`.

    Returns:
        The new layer, with accuracies before and after.

    Raises:
        ValueError: If there are too few samples, a class has fewer than two, or no linear layer makes the logits.
    """
    check_counts(max_samples=max_samples, batch_size=batch_size, copies=copies)
    network = logits_model(model)
    meaning = find_task(task, network)
    try:
        samples = draw_samples(loader, max_samples, seed, batch_adapter, meaning)
    except LookupError as error:
        raise ValueError(str(error)) from error
    return repair_samples(
        network,
        samples,
        balance=balance,
        copies=copies,
        batch_size=batch_size,
        margin=margin,
        seed=seed,
        task=meaning,
    )


def repair_samples(
    model: nn.Module,
    samples: Sequence[Sample],
    *,
    balance: Balance | None,
    copies: int,
    batch_size: int,
    margin: int | None,
    seed: int,
    task: Task,
) -> Repair:
    """Train the last layer anew on samples that were drawn; see `repair`.

    Raises:
        ValueError: As `repair`.
    """
    if balance not in (None, "surroundings", "groups"):
        raise ValueError(f"balance must be 'surroundings' or 'groups', not {balance!r}")
    if isinstance(task, Regression):
        raise ValueError("a last layer is trained anew for classes, and this model's task is a regression")
    usable, kind = _usable(samples, balance)
    if kind == "surroundings" and batch_size < 2:
        raise ValueError("batch_size must be at least 2, as surroundings come from other samples of a batch")
    batches = batched(usable, batch_size, device_of(model))
    layer = find_last_layer(model, batches[0])
    rows = [task.column] if isinstance(task, OneLabel) else list(range(layer.module.out_features))
    label = np.array([sample.label for sample in usable])
    _check_classes(label, len(rows))
    as_they_are = Table(read_features(model, layer, batches), label, weights_by(label), np.arange(len(label)))
    if kind == "groups":
        # A background, or a scanner, tells the class until it is as frequent in each of them: so groups are those of a
        # class, whether the samples' `group` says so or not.
        pairs = [[sample.group, sample.label] for sample in usable]
        group = np.unique(np.array(pairs), axis=0, return_inverse=True)[1].reshape(-1)
        trained_on = replace(as_they_are, weight=weights_by(group))
        measured = [Measured(AS_THEY_ARE, as_they_are), Measured(WORST_GROUP, as_they_are, group)]
    else:
        swaps = Swaps(copies, batch_size, margin, seed)
        trained_on = _with_other_surroundings(model, layer, usable, swaps)
        measured = [Measured(AS_THEY_ARE, as_they_are), Measured(SWAPPED, trained_on)]
    with_bias = layer.module.bias is not None
    folds = folds_of(trained_on, seed)
    penalty = choose_penalty(trained_on, folds, with_bias)
    old = _old_fit(layer, rows)
    fitted = [fit(trained_on.rows(~held_out), penalty, with_bias) for held_out in folds]
    held_out_samples = [np.unique(trained_on.sample[held_out]) for held_out in folds]
    weight, bias = _as_layer(layer, rows, fit(trained_on, penalty, with_bias))
    return Repair(
        layer=layer.name,
        weight=weight,
        bias=bias,
        balance=kind,
        samples=len(usable),
        penalty=penalty,
        before={each.title: each.accuracy(old.predict(each.table.features)) for each in measured},
        after={each.title: each.accuracy(_out_of_fold(each.table, held_out_samples, fitted)) for each in measured},
    )


class Swaps(NamedTuple):
    """How surroundings are swapped; see `repair`."""

    copies: int
    batch_size: int
    margin: int | None
    seed: int


class Measured(NamedTuple):
    """What an accuracy is of.

    Attributes:
        title: Its name.
        table: The samples.
        group: The group of each row, of which the lowest accuracy counts; None for the accuracy of all rows.
    """

    title: str
    table: Table
    group: Int[np.ndarray, " rows"] | None = None

    def accuracy(self, predicted: Int[np.ndarray, " rows"]) -> float:
        """Return the accuracy of predictions."""
        right = predicted == self.table.label
        if self.group is None:
            return float(right.mean())
        return min(float(right[self.group == each].mean()) for each in np.unique(self.group))


def _usable(drawn: Sequence[Sample], balance: Balance | None) -> tuple[list[Sample], Balance]:
    """Return the samples that the balance can use, and which balance it is.

    Raises:
        ValueError: If these are too few.
    """
    labelled = [sample for sample in drawn if sample.label >= 0]
    grouped = [sample for sample in labelled if sample.group is not None]
    marked = annotated(labelled) if balance != "groups" else []
    if balance is None:
        balance = "surroundings" if marked or not grouped else "groups"
    samples = marked if balance == "surroundings" else grouped
    needed = "an annotation (mask, boxes or rationale)" if balance == "surroundings" else "a `group`"
    if len(samples) < FEWEST:
        raise ValueError(
            f"{len(samples)} of {len(drawn)} samples have a label and {needed}: a last layer is trained anew on at "
            f"least {FEWEST}, and max_samples says how many are drawn"
        )
    if balance == "groups" and len({sample.group for sample in samples}) < 2:
        raise ValueError("all samples are of one group: there is nothing to balance")
    return samples, balance


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
        raise ValueError(f"no usable sample is of class {listed}: the last layer cannot be trained anew without")


def _with_other_surroundings(model: nn.Module, layer: LastLayer, samples: Sequence[Sample], swaps: Swaps) -> Table:
    """Return every sample with so many other surroundings."""
    generator = torch.Generator().manual_seed(swaps.seed)
    features = []
    indices = []
    for _ in range(swaps.copies):
        for rows, batch in swapped_batches(samples, swaps.batch_size, device_of(model), swaps.margin, generator):
            indices.append(rows)
            features.append(read_features(model, layer, [batch]))
    index = np.concatenate(indices)
    label = np.array([sample.label for sample in samples])[index]
    return Table(np.concatenate(features), label, weights_by(label), index)


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
