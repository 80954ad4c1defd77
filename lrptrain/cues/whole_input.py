"""An input of the model as a whole: the numbers beside an image, a second image, a text with its mask."""

from dataclasses import dataclass
from typing import Any, ClassVar

from lrptrain.batch.call import ARGUMENT, IMAGES, TEXTS
from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.relevance.arguments import mask_name

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


def whole_inputs(batch: Batch, explained: str) -> list[WholeInput]:
    """Return the inputs of a model, the explained one first, each with its masks; none where there is no other.

    Args:
        batch: Samples in the contract's form.
        explained: The parameter that takes the explained input.
    """
    own = next(name for name in (*IMAGES, "input_ids") if name in batch)
    others = {name.removeprefix(ARGUMENT): name for name in batch if name.startswith(ARGUMENT)}
    # From the labels of several heads, `labels_b`, a model computes its loss.
    others = {name: x for name, x in others.items() if batch[x].is_floating_point() or not name.startswith("label")}
    entries = {**others, explained: own}
    given = {name: batch[entry] for name, entry in entries.items()}
    masks = {mask: name for name in reversed(given) if (mask := mask_name(given, name)) is not None}
    if "input_ids" in given and "token_type_ids" in given:
        masks["token_type_ids"] = "input_ids"
    inputs = {name: [entry] for name, entry in entries.items() if name not in masks}
    if len(inputs) < 2:
        return []
    for mask, name in masks.items():
        inputs[name].append(entries[mask])
    inputs[explained] += [name for name in TEXTS if name in batch and name != own]
    names = (explained, *(name for name in inputs if name != explained))
    return [WholeInput(called(name), "open", name, tuple(inputs[name])) for name in names]
