"""Another input of the model as a whole, such as the numbers beside an image."""

from dataclasses import dataclass
from typing import Any, ClassVar

from lrptrain.batch.call import ARGUMENT
from lrptrain.cues.cue import Batch, Cue, Role


@dataclass(frozen=True)
class AnotherInput(Cue):
    """All that a parameter of the model's forward is given, beside what is explained.

    Attributes:
        argument: The parameter.
    """

    kind: ClassVar[str] = "input"
    name: str
    role: Role
    argument: str

    @classmethod
    def of(cls, argument: str, role: Role = "open") -> "AnotherInput":
        """Return the cue."""
        return cls(f"the input {argument!r}", role, argument)

    def exchange(self, batch: Batch, donors: Batch) -> dict[str, Any]:
        """See `Cue`."""
        name = f"{ARGUMENT}{self.argument}"
        return {**batch, name: donors[name]}
