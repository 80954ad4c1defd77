"""An input of the model as a whole: the numbers beside an image, a second image, a text with its mask."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from lrptrain.batch.call import ARGUMENT, IMAGES, TEXTS
from lrptrain.cues.cue import Batch, Cue, Role

_CALLED = {"input_ids": "the text", **dict.fromkeys(IMAGES, "the image")}


@dataclass(frozen=True)
class WholeInput(Cue):
    """All that the model is given of one input, where it has several.

    Attributes:
        argument: The parameter of the model's forward that takes it.
        entries: The entries of a batch: the input, and what only says which of it counts, such as an attention mask.
    """

    kind: ClassVar[str] = "input"
    name: str
    role: Role
    argument: str
    entries: tuple[str, ...]

    @classmethod
    def of(cls, *arguments: str, role: Role = "open") -> "WholeInput":
        """Return the cue of an input that is not the explained one.

        Args:
            arguments: The parameter of the model's forward, and those of its masks.
            role: What the input is.
        """
        entries = tuple(f"{ARGUMENT}{each}" for each in arguments)
        return cls(called(arguments[0]), role, arguments[0], entries)

    def exchange(self, batch: Batch, donors: Batch) -> dict[str, Any]:
        """See `Cue`."""
        return {**batch, **{name: donors[name] for name in self.entries}}


def called(argument: str) -> str:
    """Return what people call the input that a parameter takes."""
    return _CALLED.get(argument, f"the input {argument!r}")


def whole_inputs(entries: Mapping[str, Tensor], explained: str) -> list[WholeInput]:
    """Return the inputs of a model, the explained one first; none where there is no other.

    Args:
        entries: Those of a sample, without the batch axis.
        explained: The parameter that takes the explained input.
    """
    own = next(name for name in (*IMAGES, "input_ids") if name in entries)
    others = {name: name.removeprefix(ARGUMENT) for name in entries if name.startswith(ARGUMENT)}
    # From the labels of several heads, `labels_b`, a model computes its loss.
    others = {name: x for name, x in others.items() if entries[name].is_floating_point() or not x.startswith("label")}
    arguments = {own: explained, **others}
    owners = {name: _owner(name, arguments, entries) for name in arguments}
    inputs = {name: [name] for name, owner in owners.items() if owner == name}
    if len(inputs) < 2:
        return []
    inputs[own] += [name for name in TEXTS if name in entries and name != own]
    for name, owner in owners.items():
        if owner != name:
            inputs[owner].append(name)
    return [WholeInput(called(arguments[name]), "open", arguments[name], tuple(x)) for name, x in inputs.items()]


def _owner(name: str, arguments: Mapping[str, str], entries: Mapping[str, Tensor]) -> str:
    """Return the input that an entry belongs to: itself, or of a mask the one of the same words or as many tokens."""
    if not _is_mask(arguments[name]):
        return name
    words = {*arguments[name].split("_")}

    def likeness(other: str) -> tuple[int, bool]:
        as_long = entries[name].ndim == 1 and entries[name].shape == entries[other].shape[:1]
        return len(words & {*arguments[other].split("_")}), as_long

    own, *others = arguments  # of two that are alike, the one that is not explained
    found = max((other for other in (*others, own) if not _is_mask(arguments[other])), key=likeness, default=name)
    return found if any(likeness(found)) else name


def _is_mask(argument: str) -> bool:
    return "mask" in argument or "token_type" in argument
