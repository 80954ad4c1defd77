"""What a monitor has found out about a model, for whoever trains it in the same run."""

from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from torch import nn

from lrptrain.cues.cue import Cue


class Known(NamedTuple):
    """What a monitor knows of a model.

    Attributes:
        cues: The faults that the model relies on, as of the last evaluation.
        evaluations: The number of evaluations so far.
        is_at_chance: Whether the model was better than guessing in an earlier evaluation, and in the last one was not.
        inputs: The inputs of the model in which they lie, as far as anybody heard.
    """

    cues: tuple[Cue, ...] = ()
    evaluations: int = 0
    is_at_chance: bool = False
    inputs: frozenset[str] = frozenset()


_noted: WeakKeyDictionary[nn.Module, Known] = WeakKeyDictionary()
_followed: WeakSet[nn.Module] = WeakSet()


def note_known(module: nn.Module, known: Known) -> None:
    """Note what a monitor knows of a module, in place of what was noted before."""
    _noted[module] = known


def follow_known(module: nn.Module) -> Known | None:
    """Return what was noted of a module or of its parts, and note that its training goes by that; or None."""
    watched = [each for each in module.modules() if each in _noted] if _noted else []
    if not watched:
        return None
    _followed.update(watched)
    noted = [_noted[each] for each in watched]
    cues = tuple(cue for each in noted for cue in each.cues)
    inputs = frozenset(name for each in noted for name in each.inputs)
    return Known(cues, sum(each.evaluations for each in noted), any(each.is_at_chance for each in noted), inputs)


def is_followed(module: nn.Module) -> bool:
    """Return whether a training goes by what is noted of a module."""
    return module in _followed
