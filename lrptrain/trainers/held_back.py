"""What a guidance has to say of a model to whoever watches it: a monitor, which knows nothing of guidance."""

from typing import Any
from weakref import WeakKeyDictionary, ref

from torch import nn

_tellers: WeakKeyDictionary[nn.Module, ref[Any]] = WeakKeyDictionary()


def note_teller(model: nn.Module, teller: Any) -> None:
    """Note who knows whether a model learns; nobody does once the teller is gone.

    Args:
        model: The model that is trained, without wrappers.
        teller: Who knows: its `text` is why the model does not learn, a sentence without its full stop, "" while there
            is no reason, and its `losses` are the names of what guides the model.
    """
    _tellers[model] = ref(teller)


def tellers(module: nn.Module) -> list[Any]:
    """Return who knows of a module, or of a part of it."""
    found = (_tellers[part]() for part in module.modules() if part in _tellers)
    return [teller for teller in found if teller is not None]
