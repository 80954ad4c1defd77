"""A cue: something in the input that may decide an answer, and its exchange between samples.

Examples:
    >>> import torch
    >>> from dataclasses import dataclass
    >>> from lrptrain.cues.cue import Cue
    >>> @dataclass(frozen=True)
    ... class TopLine(Cue):
    ...     name: str = "the top line"
    ...     role: str = "unreviewed"
    ...     kind = "top line"
    ...     def exchange(self, batch, sources):
    ...         image = batch["image"].clone()
    ...         image[:, :, 0] = sources["image"][:, :, 0]
    ...         return {**batch, "image": image}
    >>> images = torch.rand(2, 1, 4, 4)
    >>> swapped = TopLine().exchange({"image": images}, {"image": images.flip(0)})["image"]
    >>> (swapped != images).sum((1, 2, 3))  # changed pixels
    tensor([4, 4])
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal, Self, get_args

from jaxtyping import Bool
from torch import Tensor

Batch = Mapping[str, Any]
"""Samples in the contract's form; see `lrptrain.batch`."""
MOST = 0.5
"""More than half of anything: the majority. With 1 instead, so that only all of it is enough, the cause is first in 6
instead of 7 of 8 models; with 0.25 in as many (`python -m experiments.benchmark.moved`)."""
QUARTER = 0.25
"""What people call an edge of an image, and the beginning or the end of anything, is so much of it: a quarter. Doubled,
the cause is first in 5 instead of 7 of 8 models, and 22 instead of 13 cues are named in models without one; halved,
nothing changes (`python -m experiments.benchmark.moved`)."""
CANDIDATES = 4
"""So many of what is ranked are followed up: cues of a kind that each half of the samples proposes, named cues of which
every two are compared, findings that have a proof, relevant places of a sample that may
hold a mark, and other samples of an answer that it is first looked for in. Halved, the cause is first in 6 instead of 7
of 8 models; doubled, in as many (`python -m experiments.benchmark.moved`)."""
FEWEST = 3
"""What fewer samples show is no mark, and no phrase, of theirs: two may be alike by chance. Doubled, the cause is first
in 5 instead of 7 of 8 models; with 2 in as many (`python -m experiments.benchmark.moved`)."""
Role = Literal["annotation", "shortcut", "unreviewed"]
"""What a cue is: what people marked or declared, what lies outside of that, or what nobody has spoken of."""


def check_role(role: str) -> None:
    """Reject what is no role, such as those of earlier versions."""
    if role not in get_args(Role):
        raise ValueError(f"a role is one of {', '.join(map(repr, get_args(Role)))}, not {role!r}")


class Cue(ABC):
    """Something in the input that may decide an answer.

    It is plain data, and holds for samples that nobody has seen. A kind is a dataclass in a file of its own.

    Attributes:
        kind: The kind's word in records.
        name: What a person calls it, such as `the top left corner`.
        role: What it is.
        is_position: Whether it is known by where words stand alone: what people forgot to mark stands there, too.
        is_family: Whether it is all words of a family, of which those that matter have names of their own.
        is_proposed: Whether samples propose it, so that it is no news if the model does not rely on it.
        is_rest: Whether it is all of a text, or all that is no evidence: it is named only where nothing in it is.
    """

    kind: ClassVar[str]
    is_position: ClassVar[bool] = False
    is_rest: ClassVar[bool] = False
    is_family: ClassVar[bool] = False
    is_proposed: ClassVar[bool] = False
    name: str
    role: Role

    @property
    def needs_annotation(self) -> bool:
        """Whether an annotation tells where it is."""
        return getattr(self, "where", "") in ("outside", "evidence")

    @property
    def is_outside(self) -> bool:
        """Whether it lies outside of what people marked."""
        return getattr(self, "where", "") == "outside"

    @property
    def is_several(self) -> bool:
        """Whether it is a list of things, and no one thing that a person knows."""
        return False

    @abstractmethod
    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """Return samples that each take the cue from their source; all else stays.

        Args:
            batch: The samples.
            sources: The source of each, in the same order and of the same shapes; perhaps itself.
        """

    def locate(self, batch: Batch) -> Bool[Tensor, " batch *place"] | None:
        """Return where it lies, in pixels or tokens; None for what lies everywhere."""
        return None

    def children(self) -> Sequence["Cue"]:
        """Return what it divides into, for the hierarchical test."""
        return ()

    def declared(self, role: Role) -> Self:
        """Return the same cue as what people say it is.

        Raises:
            ValueError: If the role is none of the three.
        """
        check_role(role)
        return replace(self, role=role)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, among them `where` of a kind that lies in one part alone."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.repr}  # type: ignore[arg-type]
        return {"kind": self.kind, **({"where": where} if (where := getattr(self, "where", "")) else {}), **plain}
