"""Maps for many classes, of the few samples that are displayed."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.batch import collate, model_inputs
from lrptrain.findings import ExplainedSample
from lrptrain.loggers.record import ClassMap
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.summary import class_name
from lrptrain.relevance import record
from lrptrain.relevance.registry import get_method


def compute_class_maps(
    evaluator: Evaluator, displayed: Sequence[ExplainedSample], class_names: Sequence[str]
) -> list[ClassMap]:
    """Explain the most probable classes, by one forward pass per batch and one backward pass per class without a map.

    Args:
        evaluator: The model and how it is explained; `config.class_maps` is the number of classes of a sample. Those
            explained already, the label's and the predicted one, are always among them.
        displayed: Samples with inputs, all images or all texts.
        class_names: The name of each class, in the order of the logits.

    Returns:
        For each sample its classes, the most probable first. Empty for a method whose map is the same for all classes.
    """
    config = evaluator.config
    if config.class_maps == 0 or not displayed:
        return []
    # Where no method is named, the maps that are there already say which one it is.
    method = config.method or displayed[0].method
    evaluator = evaluator.with_method(method)
    # A map projected on a class differs between classes even if the method's own does not.
    if not (get_method(method, config.options).class_specific or config.options.get("project")):
        return []
    maps: list[ClassMap] = []
    for start in range(0, len(displayed), config.batch_size):
        batch = displayed[start : start + config.batch_size]
        # One column per class still to be explained, [batch, classes]: each costs one backward pass for the whole
        # batch.
        targets = _unexplained_classes(batch, config.class_maps)
        scores = _explain(evaluator, batch, targets)
        for explained, classes, rows in zip(batch, targets.tolist(), scores, strict=True):
            new = {target: row for target, row in zip(classes, rows, strict=True) if target >= 0}
            maps += _ranked(explained, _explained_classes(explained) | new, class_names)
    return maps


def _ranked(explained: ExplainedSample, maps: dict[int, Tensor], class_names: Sequence[str]) -> list[ClassMap]:
    """Return the maps of one sample, the most probable class first, without the padding of its batch."""
    length = len(next(iter(explained.maps.values())))
    return [
        ClassMap(
            sample_id=explained.sample.sample_id,
            class_name=class_name(target, class_names),
            probability=float(explained.probabilities[target]),
            relevance=maps[target][:length].numpy(),
        )
        for target in sorted(maps, key=lambda target: -explained.probabilities[target])
    ]


def _explained_classes(explained: ExplainedSample) -> dict[int, Tensor]:
    """Return the maps that exist already, by class."""
    classes = {"label": explained.sample.label, "predicted": explained.predicted}
    return {classes[target]: values for target, values in explained.maps.items()}


def _unexplained_classes(samples: Sequence[ExplainedSample], num_classes: int) -> Int[np.ndarray, "samples classes"]:
    """Return the most probable classes of every sample that have no map; rows with fewer classes end with -1.

    With 3 classes in all for each sample, one explained for two classes has one left, one explained for a single class
    has two: [[4, -1], [2, 0]].
    """
    probabilities = np.stack([explained.probabilities for explained in samples])
    missing = np.full(len(samples), min(num_classes, probabilities.shape[1]))
    for row, explained in enumerate(samples):
        classes = list(_explained_classes(explained))
        probabilities[row, classes] = -1.0  # ranked last
        missing[row] = max(missing[row] - len(classes), 0)
    ranked = np.argsort(-probabilities, axis=1, kind="stable")[:, : missing.max()]
    return np.where(np.arange(ranked.shape[1]) < missing[:, None], ranked, -1)


def _explain(
    evaluator: Evaluator, samples: Sequence[ExplainedSample], targets: Int[np.ndarray, "samples classes"]
) -> Float[Tensor, "samples classes tokens"]:
    """Explain one class per column and sample, all from one forward pass; what belongs to -1 is meaningless."""
    if targets.shape[1] == 0:
        return torch.empty(len(samples), 0, 0)
    batch = collate([explained.sample for explained in samples], evaluator.device)
    config = evaluator.config
    with evaluator.forward_context():
        recording = record(evaluator.model, model_inputs(evaluator.model, batch))
        # A sample with fewer classes is explained for class 0 instead of -1, so that the batch stays whole; this is
        # dropped.
        columns = torch.as_tensor(targets, device=evaluator.device).clamp(min=0).unbind(1)
        maps = [recording.attribute(column, config.method, **config.options).scores for column in columns]
    return torch.stack(maps, 1).detach().double().cpu()
