"""What the steps of a guided training share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from lrptrain.guidance.objective import Objective
from lrptrain.guidance.options import GuidanceOptions
from lrptrain.guidance.strength import Strength
from lrptrain.terminal import give_warning
from lrptrain.trainers.failures import Failures


class GuidanceMessages:
    """The messages of a guidance, of most topics one; `name` is what they begin with."""

    def __init__(self, name: str, send: Callable[[str], None]) -> None:
        self.name = name
        self.send = send
        self._topics: set[str] = set()

    def start_over(self) -> None:
        """Forget the topics so far."""
        self._topics = set()

    def inform(self, text: str) -> None:
        """Send a message."""
        self.send(f"{self.name}: {text}")

    def inform_once(self, text: str, topic: str) -> None:
        """Send the first message of a topic."""
        if self._is_new(topic):
            self.inform(text)

    def warn_once(self, text: str, topic: str) -> None:
        """Warn, if it is the first message of a topic."""
        if self._is_new(topic):
            give_warning(f"{self.name}: {text}")

    def _is_new(self, topic: str) -> bool:
        is_new = topic not in self._topics
        self._topics.add(topic)
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
    messages: GuidanceMessages
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
        self.messages.start_over()
        self.strength.start_over()
        if self.objective.swap.followed:
            self.objective.swap.followed.start_over()

    def finish(self, values: Mapping[str, float]) -> None:
        """Note the values of a guided step."""
        self.values = {f"guidance/{name}": float(value) for name, value in values.items()}
        self.is_guided |= values["samples"] > 0
