"""What the user's own step gives the model: is it what the batch holds, of which the maps are made?"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.batch import IMAGES
from lrptrain.relevance.outputs import read_logits
from lrptrain.relevance.preserve import unwrap

_MOST_HEARD = 16  # a step that calls the model over and over, to write a text, say, must not fill the memory


class InputListener:
    """Notes which tensors a model is called with, until it is told to stop. It changes nothing.

    A compiled model is not listened to: what listens would be compiled with it.

    Args:
        model: The model that the user's step calls.
        batch: The batch as the step gets it.

    Attributes:
        model: The model.
        heard: The tensors of all calls.
        whole: Whether a call had the whole batch as an argument.
    """

    def __init__(self, model: nn.Module, batch: Any = None) -> None:
        self.heard: list[Tensor] = []
        self.whole = False
        self.model = model
        self._batch = batch
        inner = unwrap(model)
        compiled = hasattr(model, "_orig_mod") or inner._compiled_call_impl is not None
        self._handle = None if compiled else inner.register_forward_pre_hook(self._note, with_kwargs=True)

    def stop(self) -> None:
        """Listen no longer."""
        if self._handle is not None:
            self._handle.remove()
        self._batch = None

    def _note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # With DDP, Lightning calls a step as the module's forward, which it exchanges for that call.
        exchanged = getattr(vars(module).get("forward"), "__module__", None) or ""
        if exchanged.partition(".")[0] in ("lightning", "pytorch_lightning", "lightning_fabric"):
            return
        self.whole |= not isinstance(self._batch, Tensor) and any(
            value is self._batch for value in (*args, *kwargs.values())
        )
        if len(self.heard) >= _MOST_HEARD:
            return
        self.heard += [value.detach().clone() for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]


def whole_batch(model: nn.Module) -> str:
    """Return what to do about a model whose forward takes a whole batch.

    Args:
        model: The model.
    """
    children = [name for name, child in model.named_children() if any(True for _ in child.parameters())]
    meant = f"model={children[0]!r}" if len(children) == 1 else f"model= and one of {children}"
    return (
        f"the forward of {type(model).__name__} takes the whole batch, not images or token ids alone: name the network "
        f"that it calls with them, {meant}"
    )


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
    name = next((name for name in (*IMAGES, "input_ids") if name in batch), "")
    ours = batch[name]
    comparable = [x for x in listener.heard if x.ndim == ours.ndim and len(x) == len(ours)]
    if name == "input_ids":
        comparable = [x for x in comparable if not x.is_floating_point() and x.shape == ours.shape]
    # Where the model was called several times, as in a test-time augmentation, one call with the batch is enough. A
    # text has other tensors of the same kind, such as the attention mask, of which none needs to be the ids.
    if not comparable or any(_same(x, ours) for x in comparable):
        return
    if name == "input_ids" and len(comparable) > 1:
        return
    _refuse(comparable[0], ours, name, step)


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
        "dataset or in on_after_batch_transfer, or let batch_adapter= do the same as the step"
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
