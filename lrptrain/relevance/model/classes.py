"""Which class of every sample a target names."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.relevance.fast.walk import modules_of, once_per_class, once_per_walk
from lrptrain.relevance.types import unknown_name


def class_names(model: nn.Module) -> dict[str, int]:
    """Return the number of every class that the model's configuration names (`label2id`, `id2label`), or nothing."""
    config = getattr(model, "config", None)
    labels = getattr(config, "label2id", None)
    if isinstance(labels, Mapping) and labels:
        return dict(labels)
    names = getattr(config, "id2label", None)
    return {name: int(number) for number, name in names.items()} if isinstance(names, Mapping) else {}


def problem_type(model: nn.Module) -> str | None:
    """Return what the outputs mean, as a configuration of Hugging Face in the model says; None where none does."""
    problems = (getattr(config, "problem_type", None) for config, _ in _configured(model))
    return next((problem for problem in problems if problem), None)


def output_meaning(model: nn.Module) -> str | None:
    """Return what the outputs mean, as `problem_type`; None where nothing tells classes from labels."""
    # A head of transformers that takes labels computes its own loss by them, and leaves the type open until it trains:
    # its pipelines take that for classes that exclude each other. A backbone, with a head of the user's, has no labels.
    problem = problem_type(model)
    if problem is not None:
        return problem
    kinds = {kind for config, kinds in _configured(model) if hasattr(config, "problem_type") for kind in kinds}
    return "single_label_classification" if any(_takes_labels(kind) for kind in kinds) else None


@once_per_walk
def _configured(model: nn.Module) -> list[tuple[Any, set[type]]]:
    """Return the configurations in a model, each once, with the classes of the modules that hold it."""
    found: dict[int, tuple[Any, set[type]]] = {}
    for part in modules_of(model):
        held = "config" in vars(part) or hasattr(type(part), "config")
        config = getattr(part, "config", None) if held else None
        if config is not None:
            found.setdefault(id(config), (config, set()))[1].add(type(part))
    return list(found.values())


@once_per_class
def _takes_labels(kind: type[nn.Module]) -> bool:
    return "labels" in signature(kind.forward).parameters


def explained_class(
    target: Any, logits: Float[Tensor, "batch classes"], labels: Mapping[str, int] | None = None
) -> Int[Tensor, " batch"]:
    """Return the target as one class per sample."""
    samples, classes = logits.shape
    if target is None:
        return logits.detach().argmax(1)
    if type(target) is int and 0 <= target < classes:
        return torch.full((samples,), target, device=logits.device)
    chosen = _as_tensor(_numbered(target, labels or {}, classes), samples).to(logits.device)
    if chosen.is_floating_point() or chosen.dtype in (torch.bool, *_COMPLEX) or chosen.shape not in ((), (samples,)):
        raise ValueError(
            f"target must be an integer or one integer per sample (shape [{samples}]), not {chosen.dtype} of shape "
            f"{list(chosen.shape)}"
        )
    chosen = chosen.long().expand(samples).clone()
    if ((chosen < 0) | (chosen >= classes)).any():
        raise ValueError(f"target {chosen.tolist()[:10]} is out of range for {classes} classes (0 to {classes - 1})")
    return chosen


def rival_class(
    other: Any, target: Int[Tensor, " batch"], logits: Float[Tensor, "batch classes"], labels: Mapping[str, int]
) -> Int[Tensor, " batch"]:
    """Return the class that the target is compared with, one per sample."""
    rival = explained_class(other, logits, labels)
    if (rival == target).any():
        rows = (rival == target).nonzero().flatten().tolist()
        raise ValueError(f"target and other are the same class in samples {rows[:10]}: their difference is 0")
    return rival


_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)


def _numbered(target: Any, labels: Mapping[str, int], classes: int) -> Any:
    """The target with numbers in the places of names."""
    if isinstance(target, np.ndarray) and target.dtype.kind in "UO":
        target = target.tolist()
    if isinstance(target, str):
        return _number(target, labels, classes)
    if not isinstance(target, (list, tuple, range)):
        return target
    if any(entry is None for entry in target):
        raise ValueError(
            "target holds None beside classes: give every sample its class, or target=None for the predicted ones"
        )
    if any(isinstance(entry, (bool, np.bool_)) for entry in target):
        raise ValueError("target must be an integer or one integer per sample, and holds True or False")
    return [_number(entry, labels, classes) if isinstance(entry, str) else entry for entry in target]


def _number(name: str, labels: Mapping[str, int], classes: int) -> int:
    if not labels:
        raise ValueError(
            f"target {name!r} is a name, but the model has no config.label2id with names of classes: give the class's "
            f"number (0 to {classes - 1})"
        )
    if name not in labels:
        raise ValueError(unknown_name("class", name, list(labels)))
    return labels[name]


def _as_tensor(target: Any, samples: int) -> Tensor:
    if isinstance(target, (list, tuple)) and not target:
        raise ValueError(f"target is empty: give one class, or one per sample (here {samples})")
    try:
        return torch.as_tensor(target)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        what = " ".join(repr(target).split())
        raise ValueError(
            f"target must be an integer or one integer per sample (shape [{samples}]), not {type(target).__name__} "
            f"{what if len(what) < 80 else what[:80] + '...'}"
        ) from error
