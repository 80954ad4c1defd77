"""The gradient that the task's loss would have if all answers were guesses: how hard the task can pull.

A model that is right by a shortcut has hardly any gradient of the task left, and a guidance that is bounded by that
alone would fade with it. What the task would do to a model that had lost its answers does not fade: a guidance that is
weaker cannot take them away.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.batch.task import CLASSES, Task
from lrptrain.relevance.output.outputs import logits_of, read_logits
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.types import NonFiniteError, UnsupportedModelError


def loss_of_guesses(
    task_loss: Float[Tensor, ""], output: Any, classes: Int[Tensor, " batch *labels"] | None, task: Task = CLASSES
) -> Float[Tensor, ""] | None:
    """Return a number whose gradient is that of the task's loss, were all classes equally probable for the model.

    The gradient of a cross-entropy at the logits is `p - y`, of probabilities and labels, and `1 / classes - y` where
    all answers are guesses. How much the task's loss makes of it (a factor of its own, a loss for hard samples) is
    taken from its gradient at the logits, as far as that goes with `p - y`.

    Args:
        task_loss: The loss of the user's step, with its graph.
        output: What the model returned for the samples of the step, with its graph; None where that is not known.
        classes: The class of every sample, or 0 and 1 of each of its labels, negative where there is none; None where
            none is known.
        task: What the output means.

    Returns:
        The number, with its graph; None where the model gives no logits of classes, or the task's loss is none of them.
    """
    raw = logits_of(output)
    if classes is None or raw is None or not raw.requires_grad:
        return None
    try:
        logits = task.by_answer(at_least_float32(read_logits(output, len(classes))))
    except (UnsupportedModelError, NonFiniteError):
        return None  # of what is no logits of classes, the task's gradient alone bounds the guidance
    classes = classes.flatten().to(logits.device)
    labelled = classes >= 0
    samples = int(labelled.sum())
    (of_task,) = torch.autograd.grad(task_loss, raw, retain_graph=True, allow_unused=True)
    if of_task is None or not samples or int(classes.max()) >= logits.shape[1]:
        return None
    labels = F.one_hot(classes.clamp(min=0), logits.shape[1])
    right = (logits.softmax(1) - labels).detach() * labelled[:, None] / samples
    guessed = (1 / logits.shape[1] - labels) * labelled[:, None] / samples
    (of_classes,) = torch.autograd.grad((right * logits).sum(), raw, retain_graph=True)
    length = of_classes.float().square().sum()
    factor = float((of_task.float() * of_classes.float()).sum() / length) if length > 0 else 0.0
    return factor * (guessed * logits).sum() if 0 < factor < math.inf else None
