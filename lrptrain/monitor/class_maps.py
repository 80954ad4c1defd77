"""Maps for many classes, of the few samples that are shown."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.batch import collate, model_inputs
from lrptrain.loggers.record import ClassMap
from lrptrain.monitor.evaluate import Explainer, Scored
from lrptrain.monitor.summary import class_name
from lrptrain.relevance import record
from lrptrain.relevance.registry import get_method


def class_maps(
    model: nn.Module,
    shown: Sequence[Scored],
    explainer: Explainer,
    class_names: Sequence[str],
    device: torch.device | str = "cpu",
    forward_context: Callable[[], AbstractContextManager] = nullcontext,
) -> list[ClassMap]:
    """Explain the most probable classes: one forward pass per batch, one backward walk per class that has no map yet.

    Args:
        model: As for `lrptrain.attribute`.
        shown: Samples with inputs, all images or all texts.
        explainer: How; `explainer.class_maps` bounds the number of classes of a sample. Those explained already, the
            label's or the predicted one, are always among them.
        class_names: In the order of the logits.
        device: Where the model is.
        forward_context: Entered around forward passes (autocast).

    Returns:
        For each sample its classes, the most probable first. None by a method whose map is the same for all classes.
    """
    specific = get_method(explainer.method, explainer.options).class_specific or explainer.options.get("project")
    if not specific or explainer.class_maps == 0 or not shown or shown[0].classes == 1:
        return []
    found = []
    for start in range(0, len(shown), explainer.batch_size):
        chunk = shown[start : start + explainer.batch_size]
        targets = _other_classes(chunk, explainer.class_maps)
        maps = _explain(model, chunk, targets, explainer, device, forward_context)
        for one, classes, scores in zip(chunk, targets.tolist(), maps, strict=True):
            new = {target: row for target, row in zip(classes, scores, strict=True) if target >= 0}
            found += _ranked(one, _known(one) | new, class_names)
    return found


def _ranked(one: Scored, maps: dict[int, Tensor], class_names: Sequence[str]) -> list[ClassMap]:
    length = len(next(iter(one.maps.values())))
    return [
        ClassMap(
            sample_id=one.sample.sample_id,
            class_name=class_name(target, class_names),
            probability=float(one.probabilities[target]),
            relevance=maps[target][:length].numpy(),
        )
        for target in sorted(maps, key=lambda target: -one.probabilities[target])
    ]


def _known(one: Scored) -> dict[int, Tensor]:
    """By class, the maps that there are already."""
    classes = {"label": one.sample.label, "predicted": one.predicted}
    return {classes[target]: values for target, values in one.maps.items()}


def _other_classes(chunk: Sequence[Scored], most: int) -> Int[np.ndarray, "samples classes"]:
    """The most probable classes of every sample that have no map, most probable first; -1 where there are fewer."""
    probabilities = np.stack([one.probabilities for one in chunk])
    left = np.full(len(chunk), min(most, probabilities.shape[1]))
    for row, one in enumerate(chunk):
        known = list(_known(one))
        probabilities[row, known] = -1.0
        left[row] = max(left[row] - len(known), 0)
    ranked = np.argsort(-probabilities, axis=1, kind="stable")[:, : left.max()]
    return np.where(np.arange(ranked.shape[1]) < left[:, None], ranked, -1)


def _explain(
    model: nn.Module,
    chunk: Sequence[Scored],
    targets: Int[np.ndarray, "samples classes"],
    explainer: Explainer,
    device: torch.device | str,
    forward_context: Callable[[], AbstractContextManager],
) -> Float[Tensor, "samples classes tokens"]:
    if targets.shape[1] == 0:
        return torch.empty(len(chunk), 0, 0)
    batch = collate([one.sample for one in chunk], device)
    with forward_context():
        recorded = record(model, model_inputs(model, batch))
        columns = torch.as_tensor(targets, device=device).clamp(min=0).unbind(1)
        maps = [recorded.attribute(column, explainer.method, **explainer.options).scores for column in columns]
    return torch.stack(maps, 1).detach().double().cpu()
