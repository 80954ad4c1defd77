"""What a guidance says to the user, of which most is said once."""

from collections.abc import Callable

from lrptrain.terminal import give_warning


class Voice:
    """Speaks for a guidance.

    Args:
        name: What messages call the guidance.
        inform: Says something to the user, in the first process.

    Attributes:
        name: The same.
        inform: The same.
    """

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
