"""What a guidance has to say of a model to whoever watches it: a monitor, which knows nothing of guidance."""

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from torch import nn


class Teller(Protocol):
    """Knows what guides a model, and why it does not learn its task.

    Attributes:
        text: The reason, a sentence without its full stop; "" while there is none.
        losses: The names of what guides it.
    """

    text: str
    losses: Sequence[str]


_tellers: WeakKeyDictionary[nn.Module, ref[Teller]] = WeakKeyDictionary()


def note_teller(model: nn.Module, teller: Teller) -> None:
    """Note who knows whether a model learns; nobody does once the teller is gone.

    Args:
        model: The model that is trained, without wrappers.
        teller: Who knows.
    """
    _tellers[model] = ref(teller)


def held_back(module: nn.Module) -> str:
    """Return why a module, or a part of it, does not learn its task; "" where nothing is known of that."""
    if not _tellers:
        return ""
    tellers = (_tellers[part]() for part in module.modules() if part in _tellers)
    return next((teller.text for teller in tellers if teller is not None and teller.text), "")


def guiding(module: nn.Module) -> Sequence[str]:
    """Return the names of what guides a module, or a part of it; none where nothing does."""
    tellers = (_tellers[part]() for part in module.modules() if part in _tellers)
    return next((teller.losses for teller in tellers if teller is not None), ())
