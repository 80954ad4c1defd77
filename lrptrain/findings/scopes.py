"""Where findings are looked for: in all samples, in each class, in each group."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from lrptrain.findings.finding import OVERALL


class Scope(NamedTuple):
    """Some of the samples.

    Attributes:
        name: `"overall"`, a class's name or `"group <number>"`.
        member: Which of the samples belong to it.
    """

    name: str
    member: Bool[np.ndarray, " n"]


def scopes(
    labels: Int[np.ndarray, " n"],
    class_names: Sequence[str],
    groups: Int[np.ndarray, " n"] | None = None,
    present: Bool[np.ndarray, " n"] | None = None,
) -> list[Scope]:
    """All samples, those of every class that has any, those of every group if there are several.

    Args:
        labels: Class of each sample, an index into `class_names`.
        class_names: Name of each class.
        groups: Number of each sample's group, -1 without one.
        present: Samples that count; all by default.
    """
    present = np.ones(len(labels), dtype=bool) if present is None else present
    found = [Scope(OVERALL, present)]
    found += [Scope(class_names[c], present & (labels == c)) for c in np.unique(labels[present])]
    if groups is not None:
        numbers = np.unique(groups[present & (groups >= 0)])
        found += [Scope(f"group {g}", present & (groups == g)) for g in numbers if len(numbers) > 1]
    return found
