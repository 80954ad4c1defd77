"""From scored samples to numbers: scalars, findings and a table."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lrptrain.findings import ExplainedSample as Scored

FOCUS = "energy_pointing_game"


def targets_of(scored: Sequence[Scored]) -> list[str]:
    """The explained targets, "label" first; samples without a label lack that one."""
    return sorted({target for one in scored for target in one.maps})


def scalars(scored: Sequence[Scored], class_names: Sequence[str]) -> dict[str, float]:
    """Means over the samples in which a value is defined.

    Keys: `relevance/<target>/<measure>`, `relevance/<target>/energy_pointing_game/<class>`,
    `relevance/<target>/region/<name>`, `relevance/chance`, `relevance/accuracy` (of the sample), `relevance/samples`;
    where samples have a group, `relevance/accuracy/group_<g>` and `relevance/worst_group_accuracy`, the least of them.
    """
    found = {"relevance/samples": float(len(scored))}
    columns = {name: np.array([one.values.get(name, np.nan) for one in scored]) for name in _value_names(scored)}
    labels = np.array([one.sample.label for one in scored])
    for name, column in columns.items():
        _add_mean(found, f"relevance/{name}", column)
        if name.endswith(FOCUS):
            for label in np.unique(labels[labels >= 0]):
                _add_mean(found, f"relevance/{name}/{class_names[label]}", column[labels == label])
    _add_mean(found, "relevance/chance", np.array([one.chance for one in scored]))
    labelled = [one for one in scored if one.sample.label >= 0]
    if labelled:
        found["relevance/accuracy"] = _accuracy(labelled)
    return found | _group_accuracies(labelled)


def _group_accuracies(labelled: Sequence[Scored]) -> dict[str, float]:
    groups = sorted({one.sample.group for one in labelled if one.sample.group is not None})
    found = {f"relevance/accuracy/group_{g}": _accuracy([x for x in labelled if x.sample.group == g]) for g in groups}
    return {**found, "relevance/worst_group_accuracy": min(found.values())} if found else {}


def _accuracy(labelled: Sequence[Scored]) -> float:
    return float(np.mean([one.predicted == one.sample.label for one in labelled]))


def _add_mean(found: dict[str, float], key: str, values: np.ndarray) -> None:
    defined = values[~np.isnan(values)]
    if len(defined):
        found[key] = float(defined.mean())


def table(scored: Sequence[Scored], class_names: Sequence[str]) -> dict[str, list[Any]]:
    """One row per sample: id, classes, probability, annotated share, every measure, and the maps themselves."""
    columns: dict[str, list[Any]] = {
        "sample_id": [one.sample.sample_id for one in scored],
        "label": [class_name(one.sample.label, class_names) for one in scored],
        "predicted": [class_name(one.predicted, class_names) for one in scored],
        "probability": [one.probability for one in scored],
        "chance": [one.chance for one in scored],
    }
    if any(one.sample.group is not None for one in scored):
        columns["group"] = [one.sample.group for one in scored]
    columns |= {name.replace("/", "_"): [one.values.get(name) for one in scored] for name in _value_names(scored)}
    maps = {target: [one.maps.get(target) for one in scored] for target in targets_of(scored)}
    columns |= {f"map_{name}": [None if x is None else x.tolist() for x in column] for name, column in maps.items()}
    return columns


def _value_names(scored: Sequence[Scored]) -> list[str]:
    return list(dict.fromkeys(name for one in scored for name in one.values))


def class_name(label: int, class_names: Sequence[str]) -> str:
    """The name of a class, `?` without a label."""
    return "?" if label < 0 else class_names[label]
