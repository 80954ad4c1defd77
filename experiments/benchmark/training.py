"""The three models of a pair, on the same images or texts: one reads the mark, one cannot, one never saw it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from experiments.benchmark import breeds, images, moods, texts
from experiments.benchmark.cases import NO_MARK, Case
from experiments.benchmark.images import Columns

READS, DOES_NOT, CLEAN = "reads", "cannot read", "never saw"
TASKS: dict[str, Any] = {"digits": images, "photographs": images, "texts": texts, "pets": breeds, "moods": moods}
"""Of each task the module that has its samples, its network and how that is trained."""


@dataclass(frozen=True)
class Data:
    """What the models of a pair learn, and what they are judged by.

    Attributes:
        train: Of each model by its name: with marks as the case says, of any class, and without.
        shown: Held-out samples with marks as the case says.
        unbiased: The same with marks of any class.
        bare: The same without marks.
        look: What an inspection is told.
    """

    train: dict[str, Columns]
    shown: Columns
    unbiased: Columns
    bare: Columns
    look: dict[str, Any]


def data_of(case: Case) -> Data:
    """Make the samples of a case: the same things at the same places, whatever marks they have."""
    task = TASKS[case.task]
    unmarked = replace(case, kind=NO_MARK)
    train = task.samples(case, "train", task.TRAIN, 0)
    held_out = task.samples(case, "test", task.HELD_OUT, 1)
    return Data(
        {READS: train(True), DOES_NOT: train(False), CLEAN: task.samples(unmarked, "train", task.TRAIN, 0)(True)},
        held_out(True),
        held_out(False),
        task.samples(unmarked, "test", task.HELD_OUT, 1)(True),
        task.look(case),
    )


Step = Callable[[nn.Module, Columns, Tensor], None]
"""Computes the gradients of a step, of some rows of the training data."""


def plain_step(net: nn.Module, train: Columns, rows: Tensor) -> None:
    """Cross-entropy."""
    F.cross_entropy(logits(net, train, rows), train["label"][rows]).backward()


def trained(
    case: Case,
    train: Columns,
    step: Step = plain_step,
    weights: Float[Tensor, " n"] | None = None,
    steps: int | None = None,
) -> tuple[nn.Module, nn.Module]:
    """Train a network: AdamW with a one-cycle schedule, from the same weights and in the same order for all of a case.

    Args:
        case: The case.
        train: What it learns.
        step: Computes the gradients of a step.
        weights: How often each sample is drawn; None for all alike.
        steps: How many; None for the task's own.

    Returns:
        The network, and its last layer.
    """
    torch.manual_seed(case.randomness)
    task = TASKS[case.task]
    net = task.network(case.randomness)
    steps = steps or task.STEPS
    learned = [weight for weight in net.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=task.LR, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, task.LR, steps)
    generator = torch.Generator().manual_seed(case.randomness)
    net.train()
    for _ in range(steps):
        rows = torch.randint(len(train["label"]), (task.BATCH,), generator=generator)
        if weights is not None:
            rows = torch.multinomial(weights, task.BATCH, replacement=True, generator=generator)
        step(net, train, rows)
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return net.eval(), task.head(net)


def logits(net: nn.Module, columns: Columns, rows: Tensor) -> Float[Tensor, "rows classes"]:
    """Of some samples."""
    if "image" in columns:
        return net(columns["image"][rows])
    width = int(columns["attention_mask"][rows].sum(1).max())
    return net(**{name: columns[name][rows, :width] for name in ("input_ids", "attention_mask")}).logits


@torch.no_grad()
def answers(net: nn.Module, columns: Columns) -> Float[Tensor, "n classes"]:
    """Logits of all samples."""
    return torch.cat([logits(net, columns, rows) for rows in torch.arange(len(columns["label"])).split(64)])


def right(net: nn.Module, columns: Columns) -> Bool[np.ndarray, " n"]:
    """Which samples are read rightly."""
    return (answers(net, columns).argmax(1) == columns["label"]).numpy()
