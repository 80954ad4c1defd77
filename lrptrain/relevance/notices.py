"""What a user has to know about a map, said once per model."""

import sys
import warnings
from collections.abc import Hashable
from threading import Lock
from weakref import WeakKeyDictionary

from torch import nn

from lrptrain.relevance.types import RelevanceWarning

_given: WeakKeyDictionary[nn.Module, set[Hashable]] = WeakKeyDictionary()
_lock = Lock()


def warn_once(model: nn.Module, kind: Hashable, message: str) -> None:
    """Give a `RelevanceWarning` of one line, the first time for this model and what tells it from others, `kind`."""
    with _lock:
        kinds = _given.setdefault(model, set())
        if kind in kinds:
            return
        kinds.add(kind)
    warnings.warn(message, RelevanceWarning, stacklevel=_callers_level())


def share_notices(copied: nn.Module, model: nn.Module) -> None:
    """Let a copy of a model, made for one map, count as the model itself: what was said of it is not said again."""
    with _lock:
        _given[copied] = _given.setdefault(model, set())


def _callers_level() -> int:
    """The stack level, as seen by `warn_once`, of the first frame outside this package: the line to look at."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("lrptrain.relevance"):
        frame = frame.f_back
        level += 1
    return level
