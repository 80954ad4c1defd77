"""What the user's own step gives the model: is it what the batch holds, of which the maps are made?"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lrptrain.batch import IMAGES, model_inputs
from lrptrain.monitor.strategy_answers import StrategyAnswers
from lrptrain.relevance.notices import warn_once
from lrptrain.relevance.outputs import read_logits
from lrptrain.relevance.preserve import preserved, unwrap
from lrptrain.relevance.sharding.shards import is_sharded
from lrptrain.trainers.discover import choice, parts, whole_batch

_MOST_HEARD = 16  # a step that calls the model over and over, to write a text, say, must not fill the memory


class InputListener:
    """Notes which tensors a model is called with, until it is told to stop. It changes nothing.

    A step may call a part of the model, such as `self.net`, instead of the model, which has a forward of its own: the
    model's children are listened to, too. A compiled model is not: what listens would be compiled with it.

    Args:
        model: The model that the user's step calls.
        batch: The batch as the step gets it.

    Attributes:
        model: The model.
        heard: The tensors of all calls.
        heard_below: The tensors of all calls of each child with parameters, by its name, while the model itself is not
            called.
        listens: Whether anything can be heard.
        called: Whether the model was called.
        whole: Whether a call had the whole batch as an argument.
        answers: What a sharded model answers in the step; None of a model that is not sharded, or not listened to.
    """

    def __init__(self, model: nn.Module, batch: Any = None) -> None:
        self.heard: list[Tensor] = []
        self.heard_below: dict[str, list[Tensor]] = {}
        self.called = False
        self.whole = False
        self.model = model
        self._batch = batch
        inner = unwrap(model)
        compiled = hasattr(model, "_orig_mod") or inner._compiled_call_impl is not None
        self.listens = not compiled
        self.answers = StrategyAnswers(model) if is_sharded(model) and not compiled else None
        self._handles = [] if compiled else [inner.register_forward_pre_hook(self._note, with_kwargs=True)]
        for name, child in () if compiled else parts(inner).items():
            if child._compiled_call_impl is None and not hasattr(child, "_orig_mod"):
                self._handles += _listen(child, partial(self._note_below, name))

    def stop(self) -> None:
        """Listen no longer."""
        for handle in self._handles:
            handle.remove()
        if self.answers is not None:
            self.answers.stop()
        self._batch = None

    def _note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # With DDP, Lightning calls a step as the module's forward, which it exchanges for that call.
        exchanged = getattr(vars(module).get("forward"), "__module__", None) or ""
        if exchanged.partition(".")[0] in ("lightning", "pytorch_lightning", "lightning_fabric"):
            return
        self.called = True
        self.whole |= not isinstance(self._batch, Tensor) and any(
            value is self._batch for value in (*args, *kwargs.values())
        )
        if len(self.heard) < _MOST_HEARD:
            self.heard += _copies(args, kwargs)

    def _note_below(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        heard = self.heard_below.setdefault(name, [])
        if not self.called and len(heard) < _MOST_HEARD:
            heard += _copies(args, kwargs)


def _listen(module: nn.Module, note: Callable[..., None]) -> list[RemovableHandle]:
    return [module.register_forward_pre_hook(note, with_kwargs=True)]


def _copies(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    return [value.detach().clone() for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]


def check_model_input(listener: InputListener, batch: Mapping[str, Any], step: str) -> None:
    """Reject a batch whose images, or token ids, are not what the user's step gave the model.

    Args:
        listener: What the model was called with in the step; tensors of another kind or length are passed by.
        batch: The batch in the contract's form.
        step: The name of the step.

    Raises:
        ValueError: If the model was given other values or the batch as it is, with the way out.
    """
    if listener.whole:
        raise ValueError(whole_batch(listener.model))
    if not listener.called and listener.listens:
        _check_parts(listener, batch, step)
        return
    name, ours = _input(batch)
    comparable = _comparable(listener.heard, batch)
    # Where the model was called several times, as in a test-time augmentation, one call with the batch is enough. A
    # text has other tensors of the same kind, such as the attention mask, of which none needs to be the ids.
    if not comparable or any(_same(x, ours) for x in comparable):
        return
    if name == "input_ids" and len(comparable) > 1:
        return
    _refuse(comparable[0], ours, name, step)


def _check_parts(listener: InputListener, batch: Mapping[str, Any], step: str) -> None:
    """Check a step that calls parts of the model: they must get what the model's own forward gives them.

    Not what the batch holds: step and forward may normalise alike.
    """
    if not listener.heard_below:
        return  # the step runs no part of the model
    model = unwrap(listener.model)
    forward = _heard_in_forward(model, batch)
    if forward is None:
        return  # the model does not run: that is told where it is explained
    shared = [
        (theirs, ours)
        for name, heard in listener.heard_below.items()
        if (theirs := _comparable(heard, batch)) and (ours := _comparable(forward.get(name, []), batch))
    ]
    if not shared:
        meant = choice(list(listener.heard_below))
        message = f"{step} never calls {type(model).__name__}, which is explained; which module does it call? {meant}"
        warn_once(model, ("never called", step), message)
    elif not any(_same(x, y) for theirs, ours in shared for x in theirs for y in ours):
        theirs, ours = shared[0]
        _refuse(theirs[0], ours[0], _input(batch)[0], step)


def _heard_in_forward(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, list[Tensor]] | None:
    """Return what the children of a model get from its forward, called with a batch; None if it fails."""
    heard: dict[str, list[Tensor]] = {name: [] for name in parts(model)}

    def note(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        heard[name] += _copies(args, kwargs)

    handles = [handle for name, child in parts(model).items() for handle in _listen(child, partial(note, name))]
    inputs = model_inputs(model, batch)
    try:
        with torch.no_grad(), preserved(model):
            model(**inputs) if isinstance(inputs, dict) else model(inputs)
    except Exception:
        return None
    finally:
        for handle in handles:
            handle.remove()
    return heard


def _input(batch: Mapping[str, Any]) -> tuple[str, Tensor]:
    """Return the name and the values of a batch's images or token ids."""
    name = next(name for name in (*IMAGES, "input_ids") if name in batch)
    return name, batch[name]


def _comparable(heard: list[Tensor], batch: Mapping[str, Any]) -> list[Tensor]:
    """Return those tensors that may be the images or token ids of a batch."""
    name, ours = _input(batch)
    comparable = [x for x in heard if x.ndim == ours.ndim and len(x) == len(ours)]
    if name == "input_ids":
        return [x for x in comparable if not x.is_floating_point() and x.shape == ours.shape]
    return comparable


def check_bytes(model: nn.Module, batch: Mapping[str, Any], heard: list[Tensor], step: str) -> None:
    """Reject images of bytes that the model reads otherwise than the same numbers as floats, which maps are made of.

    Args:
        model: The model, in evaluation mode.
        batch: The batch in the contract's form, whose images are floats.
        heard: The tensors that the model was called with in the step.
        step: The name of the step.

    Raises:
        ValueError: If the model's output differs, with the way out.
    """
    name = next((name for name in IMAGES if name in batch), "")
    images = [x for x in heard if name and x.dtype == torch.uint8 and x.shape == batch[name].shape]
    if not images:
        return
    with torch.no_grad():
        of_bytes = read_logits(model(images[0]), len(images[0]))
        of_floats = read_logits(model(batch[name].to(images[0].device)), len(images[0]))
    if not torch.allclose(of_bytes, of_floats, rtol=1e-4, atol=1e-5):
        _refuse(images[0], batch[name], name, step)


def _refuse(theirs: Tensor, ours: Tensor, name: str, step: str) -> None:
    raise ValueError(
        f"{step} gives the model other values than {name!r} of the batch ({_described(theirs)}, not "
        f"{_described(ours)}): the maps would be of inputs that the model never sees. Normalise and resize in the "
        "dataset or in on_after_batch_transfer, or let batch_adapter= do the same as the step; where model= names a "
        "part of a module whose forward does it, leave model= out"
    )


def _same(theirs: Tensor, ours: Tensor) -> bool:
    """Return whether two tensors are equal, as far as the coarser of their types can tell."""
    if theirs.shape != ours.shape:
        return False
    coarse = any(x.is_floating_point() and x.element_size() < 4 for x in (theirs, ours))
    tolerance = 0.01 if coarse else 1e-5  # eps of bfloat16 is 0.008
    return torch.allclose(theirs.double(), ours.to(theirs.device).double(), rtol=tolerance, atol=1e-6, equal_nan=True)


def _described(values: Tensor) -> str:
    numbers = values.double()
    kind = str(values.dtype).removeprefix("torch.")
    return f"{kind} {list(values.shape[1:])} in {float(numbers.min()):.3g}..{float(numbers.max()):.3g}"
