"""An input of the model as a whole: the numbers beside an image, a second image, a text with its mask."""

from dataclasses import dataclass
from typing import Any, ClassVar

from lrptrain.batch.call import ARGUMENT, IMAGES, ROWS, inputs_of
from lrptrain.batch.rows import beside_rows, has_rows
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
    def of(cls, *arguments: str, role: Role = "unreviewed") -> "WholeInput":
        """Return the cue of an input that is not the explained one."""
        entries = tuple(f"{ARGUMENT}{each}" for each in arguments)
        return cls(called(arguments[0]), role, arguments[0], entries)

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`."""
        return {**batch, **{name: sources[name] for name in self.entries if name in sources}}


def called(argument: str) -> str:
    """Return what people call the input that a parameter takes."""
    return _CALLED.get(argument, f"the input {argument!r}")


def whole_inputs(batch: Batch, explained: str) -> list[WholeInput]:
    """Return the inputs of a model, the explained one first; none where there is no other; see `inputs_of`."""
    inputs = inputs_of(batch, explained)
    names = {name: called(name) for name in inputs}
    if has_rows(batch):  # what goes by their number comes along, and how many there are
        beside = beside_rows(batch)
        others = {name: entries for name, entries in inputs.items() if not set(entries) <= set(beside)}
        inputs, names[explained] = {explained: (*beside, ROWS), **others}, "the rows"
    found = [WholeInput(names[name], "unreviewed", name, entries) for name, entries in inputs.items()]
    return found if len(found) > 1 else []
