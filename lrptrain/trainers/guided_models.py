"""Which models are guided, for whoever watches them: a monitor, which knows nothing of guidance."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from torch import nn

_losses: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()


def note_guided(model: nn.Module, losses: Sequence[str]) -> None:
    """Note the names of what guides a model, which is trained without wrappers."""
    _losses[model] = tuple(losses)


def guided_by(module: nn.Module) -> tuple[str, ...]:
    """Return the names of what guides a module, or a part of it."""
    return next((_losses[part] for part in module.modules() if part in _losses), ())
