"""Which module of a model runs now, from the stack of the thread that asks: no hook, and no other thread's calls."""

import inspect
import sys
from types import CodeType, FrameType

from torch import nn

from lrptrain.relevance.fast.walk import named_modules_of, once_per_class

# The code that runs a module's hooks and its forward, and the function inside of it that does so if there are hooks.
_CALL = nn.Module._call_impl.__code__
_CALLERS = {_CALL, *(constant for constant in _CALL.co_consts if isinstance(constant, CodeType))}


@once_per_class
def _forward_of(kind: type) -> CodeType | None:
    """Return the code of the forward of a class of modules, if it has one of its own."""
    code = getattr(inspect.unwrap(getattr(kind, "forward", len)), "__code__", None)
    return code if code is not None and code.co_argcount else None


class RunningModule:
    """Finds the innermost module of a model that runs."""

    def __init__(self, model: nn.Module):
        """Learn the names of the model's modules."""
        named = named_modules_of(model)
        self._names = {id(module): name for name, module in named}
        # The code of every forward, for those that are called without hooks.
        self._forwards = {_forward_of(kind) for kind in {type(module) for _, module in named}} - {None}

    def name(self) -> str:
        """The module's name in the model; "" for the model itself, and where none runs."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code, before = frame.f_code, frame.f_back
            name = None
            if code is _CALL:
                name = self._names.get(id(frame.f_locals["self"]))
            # What `_CALL` calls, the frame of `_CALL` will name.
            elif code in self._forwards and not (before is not None and before.f_code in _CALLERS):
                name = self._names.get(id(frame.f_locals.get(code.co_varnames[0])))
            if name is not None:
                return name
            frame = before
        return ""
