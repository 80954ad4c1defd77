"""What the steps of a guided training share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from lrptrain.guidance.objective import Objective
from lrptrain.guidance.options import GuidanceOptions
from lrptrain.guidance.strength import Strength
from lrptrain.terminal import give_warning
from lrptrain.trainers.failures import Failures


class Voice:
    """Speaks for a guidance, of most topics once; `name` is what messages call it."""

    def __init__(self, name: str, inform: Callable[[str], None]) -> None:
        self.name = name
        self.inform = inform
        self._said: set[str] = set()

    def start_over(self) -> None:
        """Forget what was said."""
        self._said = set()

    def say(self, text: str) -> None:
        """Say something."""
        self.inform(f"{self.name}: {text}")

    def say_once(self, text: str, topic: str) -> None:
        """Say something of a topic that nothing was said of yet."""
        if self._is_new(topic):
            self.say(text)

    def warn_once(self, text: str, topic: str) -> None:
        """Warn of a topic that nothing was said of yet."""
        if self._is_new(topic):
            give_warning(f"{self.name}: {text}")

    def _is_new(self, topic: str) -> bool:
        is_new = topic not in self._said
        self._said.add(topic)
        return is_new


@dataclass
class GuidanceState:
    """What a guidance is asked for, and what it has measured and counted so far.

    Attributes:
        values: The values of the last batch, by the names that they are logged under.
        skipped: How often a loss or a gradient was not finite.
        left_out: How often a sample went unguided for its values.
        worked: Whether a batch was guided. Until then an error means a wrong setting, and ends the run.
        continues: Whether the step continues with what the model returns, which is no answer then.
        is_guided: Whether a batch was guided since the optimizer last stepped.
        part: The part of the model that is guided, where the step calls that without the model's own forward.
    """

    options: GuidanceOptions
    objective: Objective
    strength: Strength
    failed: Failures
    voice: Voice
    values: dict[str, float] = field(default_factory=dict)
    skipped: int = 0
    left_out: int = 0
    worked: bool = False
    continues: bool = False
    is_guided: bool = False
    part: nn.Module | None = None

    @property
    def sparse(self) -> bool:
        """Whether batches without any annotation are to be expected: before the first finding nothing is swapped."""
        return self.options.sparse or self.objective.swap.followed is not None

    def start_over(self) -> None:
        """Forget an earlier training."""
        self.values = {}
        self.skipped = self.left_out = self.failed.count = 0
        self.worked = self.continues = self.is_guided = False
        self.part = None
        self.voice.start_over()
        self.strength.start_over()
        if self.objective.swap.followed:
            self.objective.swap.followed.start_over()

    def finish(self, values: Mapping[str, float]) -> None:
        """Note the values of a guided step."""
        self.values = {f"guidance/{name}": float(value) for name, value in values.items()}
        self.is_guided |= values["samples"] > 0
