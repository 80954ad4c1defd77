"""Maps for more classes than the label and the predicted one, of the few samples that are displayed."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.loggers.record import ClassMap
from lrptrain.monitor.evaluation import ExplainedSample, class_name
from lrptrain.relevance import Recording
from lrptrain.relevance.registry import get_method

Classes = Int[np.ndarray, "samples columns"]


def explains_classes(method: str, options: Mapping[str, Any], num_logits: int) -> bool:
    """Return whether a method's maps of different classes differ, and there is more than one class."""
    # A map projected on a class differs between classes even if the method's own does not.
    return num_logits > 1 and bool(get_method(method, options).class_specific or options.get("project"))


def unexplained_classes(
    probabilities: Float[np.ndarray, "samples classes"], explained: Sequence[Collection[int]], num_classes: int
) -> Classes:
    """Return the most probable classes of every sample that have no map; rows with fewer classes end with -1.

    With 3 classes in all for each sample, one explained for two classes has one left, one explained for a single class
    has two: [[4, -1], [2, 0]].
    """
    remaining = probabilities.copy()
    missing = np.full(len(explained), min(num_classes, probabilities.shape[1]))
    for row, classes in enumerate(explained):
        remaining[row, list(classes)] = -1.0  # ranked last
        missing[row] = max(missing[row] - len(set(classes)), 0)
    ranked = np.argsort(-remaining, axis=1, kind="stable")[:, : missing.max(initial=0)]
    return np.where(np.arange(ranked.shape[1]) < missing[:, None], ranked, -1)


def explain_classes(
    recording: Recording, classes: Classes, method: str, options: Mapping[str, Any]
) -> list[dict[int, Float[Tensor, " tokens"]]]:
    """Return the map of every class of every sample, on the CPU; each column of classes is a backward pass."""
    maps: list[dict[int, Tensor]] = [{} for _ in classes]
    for column in classes.T:
        # A sample with fewer classes is explained for class 0 instead of -1, so that the batch stays whole; this is
        # dropped.
        target = torch.as_tensor(column, device=recording.logits.device).clamp(min=0)
        scores = recording.attribute(target, method, **options).scores.detach().double().cpu()
        for row, explained_class in enumerate(column.tolist()):
            if explained_class >= 0:
                maps[row][explained_class] = scores[row]
    return maps


def ranked_maps(explained: ExplainedSample, class_names: Sequence[str]) -> list[ClassMap]:
    """Return all maps of one sample, the most probable class first, without the padding of its batch."""
    length = len(next(iter(explained.maps.values())))
    maps = explained.maps_by_class
    return [
        ClassMap(
            sample_id=explained.sample.sample_id,
            class_name=class_name(target, class_names),
            probability=float(explained.probabilities[target]),
            relevance=maps[target][:length].numpy(),
        )
        for target in sorted(maps, key=lambda target: -explained.probabilities[target])
    ]
