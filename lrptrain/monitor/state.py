"""State of a run that is declared once: forgetting it, saving it and going on with it follow from that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lrptrain.monitor.config import MonitorConfig


@dataclass(frozen=True)
class _Declared:
    """A value of a run, as the class of a stage declares it.

    Attributes:
        make: Returns the value that a run begins with; it is given the stage.
        key: The name in checkpoints; "" for a value that is not saved.
        dump: Returns the value as plain ones, where it is none.
        load: Returns the value that a run continues with; it is given the stage, the present value and the plain ones.
    """

    make: Callable[[Any], Any]
    key: str = ""
    dump: Callable[[Any], Any] = lambda value: value
    load: Callable[[Any, Any, Any], Any] = lambda stage, value, plain: plain


state: Callable[..., Any] = _Declared
"""Declares a value in the class of a stage, whatever type it is annotated with."""


class RunState:
    """A stage of a monitor, whose values belong to a run."""

    _declared: ClassVar[dict[str, _Declared]] = {}

    def __init__(self, config: MonitorConfig, inform: Callable[[str], None]) -> None:
        self._config = config
        self._inform = inform

    def __init_subclass__(cls) -> None:
        cls._declared = {name: value for name, value in vars(cls).items() if isinstance(value, _Declared)}

    def reset(self) -> None:
        """Begin a run."""
        for name, declared in self._declared.items():
            setattr(self, name, declared.make(self))

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues, as plain values."""
        return {each.key: each.dump(getattr(self, name)) for name, each in self._declared.items() if each.key}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with a run; what its checkpoint does not hold, as one of an earlier version, stays."""
        for name, declared in self._declared.items():
            if declared.key in state:
                setattr(self, name, declared.load(self, getattr(self, name), state[declared.key]))
