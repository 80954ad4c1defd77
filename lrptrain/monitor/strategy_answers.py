"""Does a sharded model answer with its whole weights, without its strategy, as it does in the user's step?

Maps are made of the model alone. A model that was changed for its strategy, so that it counts its heads by the number
of processes, say, is another one with whole weights: its maps would be those of a model that nobody trains.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.relevance.methods.layers import SAME
from lrptrain.relevance.model.preserve import preserved, preserved_under_strategy, unwrap
from lrptrain.relevance.sharding.shards import computes_in_half, is_shard, is_sharded, own_name, reshard
from lrptrain.relevance.tape.nodes import map_nested, tensors_in
from lrptrain.trainers.discover import parts

_SAME_IN_HALF = 0.05
"""As `SAME`, in half precision, where one rounding of bfloat16 is 0.008: a choice, of some of them."""


class StrategyAnswers:
    """Notes what a model, or else its children, are first called with in a step, and what they answer."""

    def __init__(self, model: nn.Module) -> None:
        self._model = unwrap(model)
        self._calls: dict[nn.Module, tuple[Any, Any]] = {}
        self._answers: dict[nn.Module, list[Tensor]] = {}
        self._handles = []
        for module in (self._model, *parts(self._model).values()):
            # Before the strategy casts or splits what comes in, and after it has gathered what goes out.
            heard = module.register_forward_pre_hook(self._note_call, prepend=True, with_kwargs=True)
            self._handles += [heard, module.register_forward_hook(self._note_answer)]

    def stop(self) -> None:
        """Listen no longer."""
        for handle in self._handles:
            handle.remove()

    def _note_call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # The children of a model that is called are a part of its answer.
        if self._model not in self._calls and module not in self._calls:
            self._calls[module] = map_nested((args, kwargs), Tensor, _copy)

    def _note_answer(self, module: nn.Module, args: tuple[Any, ...], answer: Any) -> None:
        if module in self._calls and module not in self._answers:
            self._answers[module] = [_copy(x) for x in tensors_in(answer) if x.is_floating_point()]

    def check(self, forward_context: Callable[[], AbstractContextManager[Any]]) -> None:
        """Reject a model that answers otherwise with its whole weights.

        All processes must call it at the same time.
        """
        called = [self._model] if self._model in self._answers else list(self._answers)
        for module in called:
            if problem := self._difference(module, forward_context):
                raise ValueError(
                    f"{own_name(module)} with whole weights, of which maps are made, does not answer as it does under "
                    f"its strategy ({problem}): where its code counts by processes (heads // processes), let it count "
                    "by the width of what comes in, view(batch, tokens, -1, width); or use DDP"
                )

    def _difference(self, module: nn.Module, forward_context: Callable[[], AbstractContextManager[Any]]) -> str:
        """Return what is wrong with the answers of a module; "" if nothing is."""
        (args, kwargs), expected = self._calls[module], self._answers[module]
        try:
            with torch.no_grad(), preserved(module), forward_context():
                answers = [x for x in tensors_in(module(*args, **kwargs)) if x.is_floating_point()]
        except RuntimeError as error:
            return str(error).partition("\n")[0]
        half = computes_in_half(self._model) or any(x.element_size() < 4 for x in expected)
        tolerance = _SAME_IN_HALF if half else SAME
        for mine, theirs in zip(answers, expected, strict=True):
            if mine.shape != theirs.shape:
                return f"shape {list(mine.shape)}, not {list(theirs.shape)}"
            largest = float(theirs.abs().max().nan_to_num()) if theirs.numel() else 0.0
            if not torch.allclose(mine.double(), theirs.double(), rtol=0, atol=tolerance * largest, equal_nan=True):
                return f"differs by {float((mine - theirs).abs().max()) / largest:.2g} of its largest number"
        return ""


def check_answers(model: nn.Module, inputs: Any, forward_context: Callable[[], AbstractContextManager[Any]]) -> None:
    """Reject a sharded model that answers otherwise with its whole weights, where no step of the user's is heard.

    All processes must call it at the same time, with the same inputs.
    """
    if not is_sharded(model):
        return
    answers = StrategyAnswers(model)
    try:
        with preserved_under_strategy(model), torch.no_grad(), forward_context():
            model.eval()
            model(**inputs) if isinstance(inputs, dict) else model(inputs)
    finally:
        answers.stop()
        reshard(model)
    with preserved(model):
        model.eval()
        answers.check(forward_context)


def _copy(x: Tensor) -> Tensor:
    gathered = x.full_tensor() if is_shard(x) else x  # type: ignore[attr-defined]
    return gathered.detach().clone()
