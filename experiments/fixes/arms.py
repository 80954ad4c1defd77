"""The trainings that are compared: each starts from the same weights and takes as many steps as the plain one."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset

import lrptrain
from experiments.benchmark import images, texts
from experiments.benchmark.asked import ANNOTATED, BARE, inspected
from experiments.benchmark.cases import Case
from experiments.benchmark.images import Columns, shown
from experiments.benchmark.training import DOES_NOT, READS, Data, Step, logits, right, trained
from experiments.known_rivals import GroupDRO, twice_weights
from lrptrain.findings import Finding

PLAIN = "plain"
ENERGY = "a loss on AttnLRP maps (energy), all annotated"
DRO = "group DRO, told the mark of each sample"
OUTSIDE = "swap of all that is outside the annotation"
ADVICE = "swap of the faults that were found, annotated"
FIRST = "swap of the first cue that was named, not annotated"
LINE = "the first printed line, annotated"
BARE_LINE = "the first printed line, not annotated"
BOUND = "marks of any class in training (upper bound)"
JTT = "just train twice"
GROUPS = "last layer anew, told the marks of 200 held-out samples (the idea of DFR)"
LAYER = "last layer anew, 200 held-out samples with swapped surroundings"
ARMS = (PLAIN, ENERGY, DRO, OUTSIDE, ADVICE, FIRST, BOUND)
CONFIRMED = (PLAIN, JTT, GROUPS, DRO, LAYER, OUTSIDE, BOUND)
REPEATED = (PLAIN, DRO, OUTSIDE, BOUND)
LINES = (PLAIN, OUTSIDE, LINE, BARE_LINE, BOUND)
Arm = tuple[nn.Module, list[str]]


def forms(case: Case, columns: Columns, seed: int, related: bool) -> Tensor:
    """Return the class whose mark each sample shows, as it was drawn."""
    labels = columns["label"].numpy()
    correlation = case.correlation if related else None
    return torch.from_numpy(shown(labels, correlation, _classes(case), [case.randomness, seed, 1]))


def _classes(case: Case) -> int:
    return len(texts.CLASSES) if case.task == "texts" else images.CLASSES


def arms(case: Case, data: Data, names: Sequence[str]) -> Iterator[tuple[str, nn.Module, list[str]]]:
    """Train some arms of a case: name, network, and the names of the cues that it swaps.

    Where a report finds nothing, there is no advice: the plain model stays.
    """
    train = data.train[READS]
    plain = trained(case, train)[0]
    bare = {name: x for name, x in train.items() if name not in ("mask", "rationale")}
    make: dict[str, Callable[[], Arm]] = {
        PLAIN: lambda: (plain, []),
        ENERGY: lambda: (trained(case, train, guided(case, "energy", method="attnlrp"))[0], []),
        DRO: lambda: (group_dro(case, train), []),
        OUTSIDE: lambda: (trained(case, train, guided(case, "swap"))[0], []),
        ADVICE: lambda: advised(case, train, plain, inspected(plain, data.shown, case, data.look, ANNOTATED).faults),
        FIRST: lambda: advised(case, bare, plain, inspected(plain, data.shown, case, data.look, BARE).to_review[:1]),
        LINE: lambda: followed(case, train, plain, inspected(plain, data.shown, case, data.look, ANNOTATED)),
        BARE_LINE: lambda: followed(case, bare, plain, inspected(plain, data.shown, case, data.look, BARE)),
        JTT: lambda: (train_twice(case, train, plain), []),
        GROUPS: lambda: (repaired(case, data, plain, "groups"), []),
        LAYER: lambda: (repaired(case, data, plain, "outside"), []),
        BOUND: lambda: (trained(case, data.train[DOES_NOT])[0], []),
    }
    for name in names:
        yield name, *make[name]()


def train_twice(case: Case, train: Columns, first: nn.Module) -> nn.Module:
    """Train again, with what the plain model errs on drawn more often; where it errs on nothing, it stays."""
    wrong = ~torch.from_numpy(right(first, train))
    return trained(case, train, weights=twice_weights(wrong))[0] if wrong.any() and not wrong.all() else first


def repaired(case: Case, data: Data, plain: nn.Module, balance: Literal["groups", "outside"]) -> nn.Module:
    """Make the last layer anew: from held-out samples with marks of any class, or with other surroundings."""
    columns = data.shown
    if balance == "groups":
        marks = forms(case, data.unbiased, 1, related=False)
        columns = {**data.unbiased, "group": data.unbiased["label"] * _classes(case) + marks}
    mended = deepcopy(plain)
    lrptrain.repair(mended, DataLoader(StackDataset(**columns), 32), balance=balance, seed=case.number).apply(mended)
    return mended


def advised(case: Case, train: Columns, plain: nn.Module, found: list[Finding]) -> Arm:
    """Return the model that is trained as the findings say."""
    if not found:
        return plain, []
    return trained(case, train, guided(case, "swap", swap=found))[0], [each.name for each in found]


def followed(case: Case, train: Columns, plain: nn.Module, report: Any) -> Arm:
    """Return the model that is trained by the first line of a report, as it is printed."""
    first = next(iter((*report.faults, *report.to_review)), None)
    if first is None:
        return plain, []
    line = {"Guidance": lambda loss, optimizer=None, **options: (loss, options)}
    loss, options = eval(first.fix, {"lrptrain": SimpleNamespace(**line), "report": report, "optimizer": None})
    return trained(case, train, guided(case, loss, **options))[0], [first.fix]


def guided(case: Case, loss: str, **options: Any) -> Step:
    """Return the step of a loop with a guidance, everything else by default."""
    if case.task == "texts":
        options["tokenizer"] = texts.tokenizer()
    guidance = lrptrain.Guidance(loss, seed=case.number, on_error="raise", **options)

    def step(net: nn.Module, train: Columns, rows: Tensor) -> None:
        batch = {name: x[rows] for name, x in train.items() if isinstance(x, Tensor)}
        if "attention_mask" in batch:
            width = int(batch["attention_mask"].sum(1).max())
            batch = {name: x[:, :width] if x.ndim > 1 else x for name, x in batch.items()}
        with guidance.step(net, batch) as listening:
            loss = F.cross_entropy(logits(net, batch, torch.arange(len(rows))), batch["label"])
            listening.guided(loss).backward()

    return step


def group_dro(case: Case, train: Columns) -> nn.Module:
    """Train by group DRO on the groups of class and mark, each of which is drawn equally often."""
    classes = _classes(case)
    groups = train["label"] * classes + forms(case, train, 0, related=True)
    sizes = torch.bincount(groups, minlength=classes**2)
    robust = GroupDRO(classes**2)

    def step(net: nn.Module, train: Columns, rows: Tensor) -> None:
        losses = F.cross_entropy(logits(net, train, rows), train["label"][rows], reduction="none")
        robust(losses, groups[rows]).backward()

    return trained(case, train, step, 1 / sizes[groups].float())[0]


def accuracies(right: np.ndarray, own: np.ndarray) -> dict[str, float]:
    """Shares of 0..1 that are right among samples with the mark of their own class, and with that of another one."""
    return {"own": float(right[own].mean()), "other": float(right[~own].mean())}
