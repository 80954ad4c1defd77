"""Where findings are looked for: in all samples, in each class, and in each group."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

ScopeKind = Literal["overall", "class", "group"]


@dataclass(frozen=True)
class Scope:
    """Which samples a finding is about.

    Attributes:
        kind: Whether it is about all samples, about a class or about a group.
        name: The name of the class or the number of the group; "" for all samples.
    """

    kind: ScopeKind = "overall"
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind

    def to_dict(self) -> dict[str, str]:
        """Return the entries of a record: `scope` for people, and `scope_kind`, which tells a class "overall" apart."""
        return {"scope": self.name if self.kind == "class" else str(self), "scope_kind": self.kind}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scope":
        """Return the inverse of `to_dict`; older records say "overall", "group <number>" or a class."""
        text = str(values["scope"])
        group = re.fullmatch(r"group (-?\d+)", text)
        kind = values.get("scope_kind") or ("overall" if text == "overall" else "group" if group else "class")
        if kind == "group":
            return cls("group", text.removeprefix("group "))
        return cls("class", text) if kind == "class" else OVERALL


OVERALL = Scope()
"""The scope of all samples."""


class ScopeMembers(NamedTuple):
    """A scope with its samples.

    Attributes:
        scope: The scope.
        member: True for the samples that belong to it.
    """

    scope: Scope
    member: Bool[np.ndarray, " n"]


def split_into_scopes(
    labels: Int[np.ndarray, " n"],
    class_names: Sequence[str],
    groups: Int[np.ndarray, " n"] | None = None,
    present: Bool[np.ndarray, " n"] | None = None,
) -> list[ScopeMembers]:
    """Return all samples, then those of every class that has any, then those of every group if there are several.

    Args:
        labels: The class of each sample, an index into `class_names`.
        class_names: The name of each class.
        groups: The number of each sample's group, -1 without one.
        present: True for the samples that count; all do by default.
    """
    present = np.ones(len(labels), dtype=bool) if present is None else present
    scopes = [ScopeMembers(OVERALL, present)]
    for label in np.unique(labels[present]):
        scopes.append(ScopeMembers(Scope("class", class_names[label]), present & (labels == label)))
    if groups is not None:
        numbers = np.unique(groups[present & (groups >= 0)])
        if len(numbers) > 1:  # a single group is all samples
            scopes += [ScopeMembers(Scope("group", str(number)), present & (groups == number)) for number in numbers]
    return scopes
