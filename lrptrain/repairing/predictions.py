"""The classes that a model predicts, and accuracies of them in a table."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from lrptrain.batch import batch_length, model_inputs
from lrptrain.batch.logits import class_probabilities
from lrptrain.batch.task import Task
from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.terminal import WIDTH

COLUMN = 14


def predicted_classes(
    model: nn.Module, batches: Iterable[Mapping[str, Tensor]], task: Task
) -> Int[np.ndarray, " samples"]:
    """Return the class that a model predicts for each sample.

    Args:
        model: The module that gives logits, which is run in evaluation mode and left as it was.
        batches: Batches in the contract's form, where the model is.
        task: What the output means.
    """
    classes = []
    with preserved(model), torch.no_grad(), task.reading():
        model.eval()
        for batch in batches:
            inputs = model_inputs(model, batch)
            output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
            classes.append(class_probabilities(read_logits(output, batch_length(batch))).argmax(1).cpu().numpy())
    return np.concatenate(classes)


def lowest_accuracy(right: Sequence[bool] | np.ndarray, part: Int[np.ndarray, " samples"]) -> float:
    """Return the lowest accuracy over the parts, classes or groups, that samples belong to."""
    values = np.asarray(right)
    return min(float(values[part == each].mean()) for each in np.unique(part))


def accuracy_table(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
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


def not_compared_lines(reasons: Mapping[str, str]) -> list[str]:
    """Return what was not compared, and why, below an empty line; no line if all was."""
    notes = [textwrap.fill(f"Not compared: {name} ({reason}).", WIDTH) for name, reason in reasons.items()]
    return ["", *notes] if notes else []
