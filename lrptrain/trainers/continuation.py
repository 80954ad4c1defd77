"""Whether a step continues with what a model returns: then that is no logits, whatever its shape."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.relevance.model.preserve import unwrap
from lrptrain.trainers.discover import methods_of

LOOPS = ("step=", "the loop")
"""What a monitor of a loop calls the step."""


class Continuation:
    """Notes which module a step hands the output of a model to. It changes nothing.

    Attributes:
        name: The name of the module with weights, in the root, that takes the output; "" if none does.
    """

    def __init__(self, model: nn.Module, root: nn.Module) -> None:
        self.name = ""
        self._root = unwrap(root)
        self._given: torch.Size | None = None
        model = unwrap(model)
        known = dict(self._root.named_modules())
        compiled = any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in known.values())
        self._handles = [] if compiled else [model.register_forward_hook(self._keep)]
        for name, each in {} if compiled else known.items():
            if each is not model and next(each.parameters(), None) is not None:
                self._handles.append(each.register_forward_pre_hook(partial(self._note, name), with_kwargs=True))
        if not compiled:
            self._handles.append(model.register_forward_pre_hook(self._forget))

    def stop(self) -> None:
        """Listen no longer."""
        for handle in self._handles:
            handle.remove()

    def check(self, step: str) -> None:
        """Reject an output that is no logits."""
        if self.name:
            raise ValueError(
                f"{step} gives what the model returns to {self.name!r}, so that it is no logits: "
                f"{way_out(self._root, step)}"
            )

    def _forget(self, module: nn.Module, args: Any) -> None:
        self._given = None

    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        self._given = logits.shape if isinstance(logits, Tensor) and logits.ndim == 2 else None

    def _note(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        given = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
        if self._given is not None and any(x.shape == self._given and x.is_floating_point() for x in given):
            self.name = self.name or name


def way_out(root: nn.Module, step: str = "") -> str:
    """Return how to name what gives the logits of a step that calls several modules."""
    methods = methods_of(root)
    name = methods[0] if methods else "logits"
    call = f"model.{name} in place of the model" if step in LOOPS else f"model={name!r}"
    if not methods:
        return f"put these calls into a method that the step calls, such as logits(self, image), and pass {call}"
    return f"pass the method that gives the logits, {call}" + (f"; there are {methods}" if len(methods) > 1 else "")
