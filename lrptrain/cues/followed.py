"""What a monitor knows of a model that is trained, for whoever trains it."""

from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from torch import nn

from lrptrain.cues.cue import Cue


class Known(NamedTuple):
    """What a monitor knows of a model.

    Attributes:
        cues: The faults that it relies on, as of the last evaluation.
        evaluations: How many evaluations there were.
        is_at_chance: Whether the model told classes apart in one of them, and in the last one did not.
    """

    cues: tuple[Cue, ...] = ()
    evaluations: int = 0
    is_at_chance: bool = False


_known: WeakKeyDictionary[nn.Module, Known] = WeakKeyDictionary()
_followed: WeakSet[nn.Module] = WeakSet()


def note_known(module: nn.Module, known: Known) -> None:
    """Note what a monitor knows of a module, in place of what was noted before.

    Args:
        module: The module that is trained, without wrappers.
        known: What is known.
    """
    _known[module] = known


def follow_known(module: nn.Module) -> Known | None:
    """Return what is known of a module, or of parts of it, and note that its training goes by that.

    Returns:
        None where no monitor notes anything.
    """
    watched = [each for each in module.modules() if each in _known] if _known else []
    if not watched:
        return None
    _followed.update(watched)
    known = [_known[each] for each in watched]
    cues = tuple(cue for each in known for cue in each.cues)
    return Known(cues, sum(each.evaluations for each in known), any(each.is_at_chance for each in known))


def is_followed(module: nn.Module) -> bool:
    """Return whether a training goes by what is known of a module."""
    return module in _followed
