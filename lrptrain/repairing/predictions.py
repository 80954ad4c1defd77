"""The classes that a model predicts."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from lrptrain.batch import batch_length, model_inputs
from lrptrain.batch.logits import class_probabilities
from lrptrain.batch.task import Task
from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.output.outputs import read_logits


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
