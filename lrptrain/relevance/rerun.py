"""Run the recorded model again, on other values of the explained input."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lrptrain.relevance.functions import canonical_name
from lrptrain.relevance.recording import Recording, explained_input


class _Substitution(TorchFunctionMode):
    """Gives the model other word embeddings than it looked up."""

    def __init__(self, token_ids: Tensor, embeddings: Tensor):
        super().__init__()
        self.token_ids, self.embeddings = token_ids, embeddings

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if canonical_name(func) != "embedding":
            return result
        given = args[0] if args else kwargs.get("input")
        assert isinstance(given, Tensor)
        same = given.shape == self.token_ids.shape
        if same and (given is self.token_ids or torch.equal(given, self.token_ids)):
            return self.embeddings.to(result.dtype)
        return result


def rerun(recording: Recording, values: Float[Tensor, "copies ..."]) -> Any:
    """The model's output for other pixels or word embeddings, with its own attention kernels.

    Args:
        recording: Of the batch as it is.
        values: In the place of `recording.tape.root`: one or several copies of the batch, one behind the other. Other
            inputs of the model are repeated to match. Gradients flow to it where enabled.
    """
    name, original = explained_input(recording.inputs)
    copies = values.shape[0] // recording.samples
    given = values
    with ExitStack() as stack:
        for kind, dtype, enabled in recording.autocast.devices:
            stack.enter_context(torch.autocast(kind, dtype, enabled))
        if recording.tape.token_ids is not None:
            given = original.repeat(copies, 1)
            stack.enter_context(_Substitution(given, values))
        if not isinstance(recording.inputs, Mapping):
            return recording.model(given)
        others = {key: _repeated(x, copies, recording.samples) for key, x in recording.inputs.items()}
        return recording.model(**others | {name: given})


def _repeated(x: Any, copies: int, samples: int) -> Any:
    if not isinstance(x, Tensor):
        return x
    return x.repeat(copies, *[1] * (x.ndim - 1)) if x.ndim and x.shape[0] == samples else x.clone()
