"""Maps for many classes, of the few samples that are displayed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from lrptrain.batch import collate, model_inputs
from lrptrain.batch.call import explained_argument, of_batches
from lrptrain.batch.sizes import by_size
from lrptrain.loggers.record import ClassMap
from lrptrain.monitor.evaluation import ExplainedSample, class_name
from lrptrain.monitor.evaluator import Evaluator
from lrptrain.monitor.further_classes import Classes, explain_classes, explains_classes, unexplained_classes
from lrptrain.relevance import record


def compute_class_maps(
    evaluator: Evaluator, displayed: Sequence[ExplainedSample], class_names: Sequence[str]
) -> list[ClassMap]:
    """Return the maps of the most probable classes; those that an evaluation has not made are made now.

    Args:
        evaluator: The model and how it is explained; `class_maps` is the number of classes of a sample. Those explained
            already, the label's and the predicted one, are always among them.
        displayed: Samples with inputs, all images or all texts.
        class_names: The name of each class, in the order of the logits.

    Returns:
        For each sample its classes, the most probable first. Empty for a method whose map is the same for all classes.
    """
    if evaluator.class_maps == 0 or not displayed:
        return []
    # Where no method is named, the maps that are there already say which one it is.
    method = evaluator.method or displayed[0].method
    if not explains_classes(method, evaluator.config.method_options, displayed[0].num_logits):
        return []
    complete: list[ExplainedSample] = []
    for indices in by_size([each.sample for each in displayed], evaluator.config.run.batch_size):
        complete += _completed(evaluator, method, [displayed[index] for index in indices])
    return [each for explained in complete for each in _ranked(explained, class_names)]


def _completed(evaluator: Evaluator, method: str, samples: Sequence[ExplainedSample]) -> list[ExplainedSample]:
    """Return samples with the maps that they lack, by one forward pass, if any lacks one."""
    probabilities = np.stack([explained.probabilities for explained in samples])
    explained = [list(_explained_classes(each)) for each in samples]
    classes: Classes = unexplained_classes(probabilities, explained, evaluator.class_maps)
    lacking = np.flatnonzero((classes >= 0).any(1)).tolist()
    if not lacking:
        return list(samples)
    batch = collate([samples[row].sample for row in lacking], evaluator.device)
    with evaluator.forward_context():
        inputs = model_inputs(evaluator.model, batch)
        recording = record(of_batches(evaluator.model, batch), inputs, frugal=True, explain=explained_argument(inputs))
        maps = explain_classes(recording, classes[lacking], method, evaluator.config.method_options)
    maps_of_row = dict(zip(lacking, maps, strict=True))
    return [replace(each, class_maps=each.class_maps | maps_of_row.get(row, {})) for row, each in enumerate(samples)]


def _ranked(explained: ExplainedSample, class_names: Sequence[str]) -> list[ClassMap]:
    """Return the maps of one sample, the most probable class first, without the padding of its batch."""
    length = len(next(iter(explained.maps.values())))
    maps = _explained_classes(explained)
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
    """Return all maps of a sample, by class."""
    if explained.labels is not None:  # whose map is that of all answers
        return explained.class_maps
    classes = {"label": explained.sample.label, "predicted": explained.predicted}
    return {classes[target]: values for target, values in explained.maps.items()} | explained.class_maps
