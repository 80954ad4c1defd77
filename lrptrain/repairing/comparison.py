"""All repairs of a last layer beside each other, on a user's own model and samples."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from lrptrain.auditing.brought import logits_model
from lrptrain.batch import BatchAdapter, Sample
from lrptrain.batch.task import Task, TaskName, find_task
from lrptrain.repairing.balance import GROUPS, Balance, Swaps
from lrptrain.repairing.erasure import NothingLeftError
from lrptrain.repairing.predictions import accuracy_table, not_compared_lines
from lrptrain.repairing.repair import (
    AS_THEY_ARE,
    FEWEST,
    NEEDED,
    NOT_TESTED,
    NOUNS,
    WORST_CLASS,
    How,
    Repair,
    draw_labelled,
    filled,
    is_usable,
    listed,
    other_class,
    read_tables,
    same_class,
)

AS_TRAINED = "as trained"
BY_DEFAULT: tuple[Balance, ...] = ("surroundings", GROUPS)


@dataclass(frozen=True)
class RepairComparison:
    """Repairs of one last layer, measured alike.

    Attributes:
        repairs: By their names, as in "retrain, surroundings".
        samples: How many samples they were made from and measured on, in folds.
        not_compared: By the name of a balance, or of a repair, why it was not compared.
    """

    repairs: dict[str, Repair]
    samples: int
    not_compared: Mapping[str, str]

    def __getitem__(self, name: str) -> Repair:
        """Return the repair of a name, as in `comparison["erase, groups"].apply(model)`.

        Raises:
            KeyError: With the names that there are.
        """
        if name not in self.repairs:
            raise KeyError(f"no repair {name!r} was compared: there are {', '.join(map(repr, self.repairs))}")
        return self.repairs[name]

    def __str__(self) -> str:
        """Return a table: a row per repair, a column per accuracy, or what an exchange costs of it."""
        first = next(iter(self.repairs.values()))
        rows = {AS_TRAINED: first.before, **{name: each.after for name, each in self.repairs.items()}}
        columns = {name: _columns(values) for name, values in rows.items()}
        lost = [
            "",
            "Lost: accuracy with the same class's less accuracy with another class's.",
            *filled(NOT_TESTED),
        ]
        return "\n".join(
            [
                f"Repairs of the last layer {first.layer!r}: accuracies on {self.samples} samples,",
                "by layers that were not made from the samples they are measured on.",
                "",
                *accuracy_table(columns),
                *(lost if _columns(first.before).keys() - first.before.keys() else []),
                *not_compared_lines(self.not_compared),
            ]
        )


def _columns(values: Mapping[str, float]) -> dict[str, float]:
    """Return accuracies, of which those of an exchange are one column: what it costs beyond its control."""
    columns = dict(values)
    for balance, noun in NOUNS.items():
        if other_class(balance) in columns:
            lost = columns[same_class(balance)] - columns[other_class(balance)]
            columns[f"lost to another class's {noun}"] = lost
            del columns[same_class(balance)], columns[other_class(balance)]
    return columns


def compare_repairs(
    model: Any,
    loader: Iterable[Any],
    *,
    balances: Sequence[Balance] | None = None,
    copies: int = 5,
    max_samples: int = 512,
    batch_size: int = 32,
    seed: int = 0,
    batch_adapter: BatchAdapter | None = None,
    task: TaskName | Task | None = None,
) -> RepairComparison:
    """Make the last layer anew in every way that the samples allow, and measure all of them alike.

    `comparison = lrptrain.compare_repairs(model, val_loader)`, `print(comparison)`,
    `comparison["erase, surroundings"].apply(model)`.

    Args:
        model: See `lrptrain.repair`.
        loader: See `lrptrain.repair`.
        balances: What is to tell nothing of the class, as in `lrptrain.repair`; None for surroundings and groups, as
            far as samples have annotations and groups.
        copies: See `lrptrain.repair`.
        max_samples: See `lrptrain.repair`.
        batch_size: See `lrptrain.repair`.
        seed: See `lrptrain.repair`.
        batch_adapter: See `lrptrain.repair`.
        task: See `lrptrain.repair`.

    Raises:
        ValueError: As `lrptrain.repair`; or if too few samples have all that the balances need.
    """
    network = logits_model(model)
    meaning = find_task(task, network)
    samples = draw_labelled(loader, max_samples, seed, batch_adapter, meaning)
    return compare_samples(network, samples, balances=balances, swaps=Swaps(copies, batch_size, seed), task=meaning)


def compare_samples(
    model: Any, samples: Sequence[Sample], *, balances: Sequence[Balance] | None, swaps: Swaps, task: Task
) -> RepairComparison:
    """Compare repairs by samples that were drawn; see `compare_repairs`.

    Raises:
        ValueError: As `compare_repairs`.
    """
    check_balances(balances)
    usable = usable_for(samples, balances or BY_DEFAULT)
    not_compared = {} if balances else lacking(samples, usable)
    compared = [each for each in usable if each not in not_compared]
    if not compared:
        raise ValueError(
            f"of {len(samples)} samples too few have what is needed: {' and '.join(not_compared.values())}; name a "
            "balance that needs images alone: 'statistics', 'detail', 'shading' or 'edges'"
        )
    common = [samples[i] for i in sorted(set.intersection(*(usable[each] for each in compared)))]
    if len(common) < FEWEST:
        needed = " and ".join(NEEDED[each] for each in compared)
        raise ValueError(
            f"{len(common)} of {len(samples)} samples have a label and {needed}: at least {FEWEST} are needed to "
            "compare repairs on the same ones; name fewer balances"
        )
    if GROUPS in compared and len({sample.group for sample in common}) < 2:
        raise ValueError("all samples are of one group: there is nothing to balance")
    tables = read_tables(model, common, compared, swaps, task)
    measured = tables.measured([AS_THEY_ARE, WORST_CLASS])
    ways: list[How] = list(get_args(How))
    repairs = {}
    for balance, how in product(compared, ways):
        try:
            repairs[f"{how}, {balance}"] = tables.repaired(how, balance, measured)
        except NothingLeftError as error:
            not_compared[f"{how}, {balance}"] = str(error)
    return RepairComparison(repairs, len(common), not_compared)


def check_balances(balances: Sequence[Balance] | None) -> None:
    """Reject names of no balance.

    Raises:
        ValueError: With those that there are.
    """
    unknown = [each for each in balances or () if each not in get_args(Balance)]
    if unknown or balances == []:
        raise ValueError(f"balances are some of {listed(get_args(Balance))}, not {unknown or balances!r}")


def usable_for(samples: Sequence[Sample], balances: Iterable[Balance]) -> dict[Balance, set[int]]:
    """Return the indices of the samples that each balance can use."""
    return {each: {i for i, sample in enumerate(samples) if is_usable(sample, each)} for each in balances}


def lacking(samples: Sequence[Sample], usable: Mapping[Balance, Collection[int]]) -> dict[str, str]:
    """Return what samples lack for a balance, by its name."""
    lacking: dict[str, str] = {
        each: f"fewer than {FEWEST} samples have {NEEDED[each]}"
        for each, indices in usable.items()
        if len(indices) < FEWEST
    }
    if GROUPS not in lacking and len({samples[i].group for i in usable[GROUPS]}) < 2:
        lacking[GROUPS] = "all samples are of one group"
    return lacking
