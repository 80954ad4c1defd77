"""Last-layer repair: a trained model keeps its features, and its last layer weighs them anew.

A network that reads a shortcut has often learned the right features, too, and only weighs them less (Kirichenko et al.
2023, "Last layer re-training is sufficient for robustness to spurious correlations"). They balance groups, which needs
to be told which sample has the shortcut. Samples with swapped surroundings need annotations in its place, of some
hundred samples, and no name for the shortcut; those with swapped colour, light, spectrum or border need neither.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.auditing.samples import draw_samples
from lrptrain.batch import BatchAdapter, Sample, batched
from lrptrain.batch.task import OneLabel, Ordinal, Regression, Task, TaskName, find_task
from lrptrain.guidance.swap_names import OUTSIDE, known_name
from lrptrain.metrics.interval import NORMAL
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.repairing.balance import (
    FEWEST,
    GROUPS,
    NAMES,
    Swaps,
    exchanged_batches,
    groups_of,
    has_image,
    is_usable,
    needed,
    noun,
    swapped_batches,
    weights_by,
)
from lrptrain.repairing.fitting import CrossValidation, LinearFit, Table, fit, folds_of
from lrptrain.repairing.last_layer import LastLayer, find_last_layer, read_features
from lrptrain.terminal import WIDTH
from lrptrain.trainers.checks import check_counts
from lrptrain.trainers.discover import device_of, logits_model

NOT_TESTED = (
    "Not tested: samples that come without the shortcut. A swap leaves traces, such as the outline of what is "
    "pasted, and a layer can learn to use those."
)
AS_THEY_ARE = "as they are"
WORST_GROUP = "worst group"
Predict = Callable[[Table], Int[np.ndarray, " rows"]]


class Reliance(NamedTuple):
    """How much accuracy an exchange with another class costs, beyond one with the same class, in -1..1.

    Attributes:
        before: Of the old layer.
        after: Of new layers, on samples and sources that these were not made from.
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
        balance: What says nothing about the class in the samples that it was made from.
        samples: How many samples these were.
        penalty: The inverse strength of the L2 penalty that was chosen.
        before: Accuracies of the old layer, by what they are of.
        after: Those of new layers on samples that these were not made from, in folds.
        reliance: What a swap with another class costs before and after; None where it was not measured.
    """

    layer: str
    weight: Float[Tensor, "classes width"]
    bias: Float[Tensor, " classes"] | None
    balance: str
    samples: int
    penalty: float
    before: dict[str, float]
    after: dict[str, float]
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
        return [*lines, *(line for text in (self._exchange(), NOT_TESTED) for line in textwrap.wrap(text, WIDTH - 2))]

    def _exchange(self) -> str:
        """Return what an exchange with another class costs, in a sentence or two."""
        of, given = self.reliance, noun(self.balance)
        if of is None:
            return f"Not tested: whether it relies on another class's {given}: too few samples of a class."
        before, after = (
            f"{100 * mean:.1f} ± {100 * error:.1f}"
            for mean, error in ((of.before, of.error_before), (of.after, of.error_after))
        )
        verdict = "" if of.is_significant else " That is no significant difference."
        return (
            f"Another class's {given} instead of the same class's: {before} points of accuracy lost before, {after} "
            f"after (n = {of.samples}, 95 % intervals).{verdict}"
        )

    def _made(self) -> str:
        """Return how the layer was made, in a sentence."""
        given = f"with the {noun(self.balance)} of others"
        kind = "with all groups of each class alike" if self.balance == GROUPS else given
        return f"The last layer {self.layer!r}, trained anew on {self.samples} samples {kind}."


def repair(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    balance: str | None = None,
    copies: int = 5,
    max_samples: int = 512,
    batch_size: int = 32,
    seed: int = 0,
    batch_adapter: BatchAdapter | None = None,
    task: TaskName | Task | None = None,
) -> Repair:
    """Fit the last layer of a model anew, on samples in which the shortcut says nothing about the class.

    `print(repaired)` shows accuracies; only `repaired.apply(model)` changes the model. Take samples that the model was
    not trained on.

    Examples:
        >>> import torch, lrptrain
        >>> number = torch.arange(64)
        >>> data = [{"image": torch.rand(64, 1, 8, 8), "label": number % 2, "group": number // 2 % 2}]
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
        >>> repaired = lrptrain.repair(model, data)
        >>> repaired.apply(model)

    Args:
        model: A LightningModule, or any classifier, whose logits are the output of a linear layer.
        loader: Batches as the callbacks read them, with labels, and perhaps with annotations or groups.
        balance: "groups": all groups (`group`, by shortcut, or by shortcut and class) count alike in each class. Or
            what is swapped between samples, as `swap=` of the guidance names it: "outside" needs annotations, "colour",
            "spectrum", "light", "framing", "border" or "background" (all but the middle) of an image nothing. None for
            "outside" with annotations, else groups.
        copies: How many swapped copies of each sample there are.
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
    check_counts(max_samples=max_samples)
    samples = draw_samples(loader, max_samples, seed, batch_adapter, meaning)
    return repair_samples(network, samples, balance=balance, swaps=Swaps(copies, batch_size, seed), task=meaning)


def repair_samples(
    model: nn.Module, samples: Sequence[Sample], *, balance: str | None, swaps: Swaps, task: Task
) -> Repair:
    """Make the last layer anew from samples that were drawn; see `repair`."""
    samples, balance = _usable(samples, balance)
    if isinstance(task, (Ordinal, Regression)):
        raise ValueError(f"a last layer is made anew for classes, and this model's task is {task.name}")
    check_counts(copies=swaps.copies, batch_size=swaps.batch_size)
    if swaps.batch_size < 2 and balance != GROUPS:
        raise ValueError("batch_size must be at least 2, as what is swapped comes from other samples of a batch")
    batches = batched(samples, swaps.batch_size, device_of(model))
    layer = find_last_layer(model, batches[0])
    rows = [task.column] if isinstance(task, OneLabel) else list(range(layer.module.out_features))
    label = np.array([sample.label for sample in samples])
    _check_classes(label, len(rows))
    as_they_are = Table(read_features(model, layer, batches), label, weights_by(label), np.arange(len(label)))
    folds = [np.flatnonzero(fold) for fold in folds_of(as_they_are, swaps.seed)]
    exchanged, group = None, None
    if balance == GROUPS:
        group = groups_of(samples)
        made_from = replace(as_they_are, weight=weights_by(group))
    else:
        made_from = _with_swaps(model, layer, samples, balance, swaps)
        exchanged = _exchanged(model, layer, samples, folds, balance, swaps)
    with_bias = layer.module.bias is not None
    validation = CrossValidation(made_from, [np.isin(made_from.sample, fold) for fold in folds], with_bias)
    penalty = validation.penalty()
    # What is held out has no say in the penalty, either.
    fitted = [validation.fitted(validation.penalty(fold), fold) for fold in range(len(folds))]
    old = _old_fit(layer, rows)

    def before(table: Table) -> Int[np.ndarray, " rows"]:
        return old.predict(table.features)

    def after(table: Table) -> Int[np.ndarray, " rows"]:
        return _out_of_fold(table, folds, fitted)

    def accuracies(predict: Predict) -> dict[str, float]:
        right = predict(as_they_are) == label
        values = {AS_THEY_ARE: float(right.mean())}
        if group is not None:
            values[WORST_GROUP] = min(float(right[group == each].mean()) for each in np.unique(group))
        for whose, table in zip(("the same", "another"), exchanged or (), strict=False):
            values[f"with {whose} class's {noun(balance)}"] = float((predict(table) == table.label).mean())
        return values

    weight, bias = _as_layer(layer, rows, fit(made_from, penalty, with_bias))
    return Repair(
        layer=layer.name,
        weight=weight,
        bias=bias,
        balance=balance,
        samples=len(samples),
        penalty=penalty,
        before=accuracies(before),
        after=accuracies(after),
        reliance=None if exchanged is None else _reliance(*exchanged, before, after),
    )


def _reliance(same: Table, other: Table, before: Predict, after: Predict) -> Reliance:
    """Return what an exchange with another class costs by the predictions before and after."""
    lost = np.stack(
        [(predict(same) == same.label).astype(float) - (predict(other) == other.label) for predict in (before, after)]
    )
    of_each = np.stack([*lost, lost[0] - lost[1]])  # [before, after and their difference, samples]
    errors = NORMAL * of_each.std(1, ddof=1) / np.sqrt(of_each.shape[1])
    return Reliance(
        before=float(lost[0].mean()),
        after=float(lost[1].mean()),
        error_before=float(errors[0]),
        error_after=float(errors[1]),
        error_change=float(errors[2]),
        samples=of_each.shape[1],
    )


def _usable(drawn: Sequence[Sample], balance: str | None) -> tuple[list[Sample], str]:
    """Return the samples that the balance can use, and which balance it is."""
    if balance is None:
        annotated, grouped = (any(is_usable(sample, each) for sample in drawn) for each in (OUTSIDE, GROUPS))
        balance = GROUPS if grouped and not annotated else OUTSIDE
    known_name(balance, "balance", NAMES)
    samples = [sample for sample in drawn if is_usable(sample, balance)]
    if len(samples) < FEWEST:
        hint = ""
        if balance in (OUTSIDE, GROUPS) and any(map(has_image, drawn)):
            hint = "; balance='colour', 'spectrum', 'light' or 'border' need neither annotation nor group"
        raise ValueError(
            f"{len(samples)} of {len(drawn)} samples have a label and {needed(balance)}: a last layer is made anew "
            f"from at least {FEWEST}, and max_samples says how many are drawn{hint}"
        )
    if balance == GROUPS and len({sample.group for sample in samples}) < 2:
        raise ValueError("all samples are of one group: there is nothing to balance")
    return samples, balance


def _check_classes(label: Int[np.ndarray, " samples"], rows: int) -> None:
    """Reject samples that lack a class: its row would be trained on what it is not."""
    classes = max(rows, 2)  # one logit tells two classes apart
    missing = sorted(set(range(classes)) - set(label.tolist()))
    beyond = sorted(set(label.tolist()) - set(range(classes)))
    if beyond:
        raise ValueError(f"label {beyond[0]} is no class of a model with {classes} classes")
    if missing:
        listed = ", ".join(map(str, missing[:10]))
        raise ValueError(f"no usable sample is of class {listed}: the last layer cannot be made anew without")


def _with_swaps(model: nn.Module, layer: LastLayer, samples: Sequence[Sample], balance: str, swaps: Swaps) -> Table:
    """Return every sample as often as it is given something of another."""
    generator = torch.Generator().manual_seed(swaps.seed)
    features = []
    indices = []
    for _ in range(swaps.copies):
        for rows, batch in swapped_batches(samples, balance, swaps, device_of(model), generator):
            indices.append(rows)
            features.append(read_features(model, layer, [batch]))
    index = np.concatenate(indices)
    label = np.array([samples[row].label for row in index])
    return Table(np.concatenate(features), label, weights_by(label), index)


def _exchanged(
    model: nn.Module,
    layer: LastLayer,
    samples: Sequence[Sample],
    folds: Sequence[Int[np.ndarray, " samples"]],
    balance: str,
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
    same, other = (Table(np.concatenate(part), label, np.ones(len(index)), np.array(index)) for part in features)
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
