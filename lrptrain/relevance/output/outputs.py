"""How what a model returns is read: its logits, a named field of it, and what a message says of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.output.logit_view import LogitView, active_view
from lrptrain.relevance.types import NonFiniteError, UnsupportedModelError


def named_fields(output: Any) -> dict[str, Any]:
    """Return the fields of a dict, a dataclass, a NamedTuple or any other object; a tensor or a list has none."""
    if isinstance(output, Mapping):
        return {str(name): field for name, field in output.items()}
    if hasattr(output, "_fields"):
        return dict(output._asdict())
    if is_dataclass(output) and not isinstance(output, type):
        return {field.name: getattr(output, field.name) for field in fields(output)}
    return {} if isinstance(output, (Tensor, list, tuple)) else dict(getattr(output, "__dict__", {}))


def described(output: Any) -> str:
    """Say in a few words what a model returned: its type, and its tensors with their names and shapes."""
    if isinstance(output, Tensor):
        return f"a tensor of shape {list(output.shape)}"
    entries = named_fields(output)
    if not entries and isinstance(output, (list, tuple)):
        entries = {f"[{number}]": entry for number, entry in enumerate(output[:5])}
    tensors = [f"{name} {list(entry.shape)}" for name, entry in entries.items() if isinstance(entry, Tensor)]
    others = [f"{name} ({type(entry).__name__})" for name, entry in entries.items() if not isinstance(entry, Tensor)]
    parts = ", ".join([*tensors, *others][:12])
    return f"{type(output).__name__} with {parts}" if parts else type(output).__name__


def field_of(output: Any, *names: str) -> Tensor | None:
    """Return the output itself if it is a tensor, else the first of its fields of these names that is one, or None."""
    if isinstance(output, Tensor):
        return output
    entries = named_fields(output)
    candidates = (entries[name] if name in entries else getattr(output, name, None) for name in names)
    return next((entry for entry in candidates if isinstance(entry, Tensor)), None)


HeadName = str | int | Callable[[Any], Tensor]
_HEAD: ContextVar[HeadName | None] = ContextVar("head", default=None)


def active_head() -> HeadName | None:
    """Return the part of the innermost `head_of_output`, or None."""
    return _HEAD.get()


@contextmanager
def head_of_output(name: HeadName | None) -> Iterator[None]:
    """Take the logits from one part of a model's output, in all that reads them meanwhile."""
    token = _HEAD.set(name)
    try:
        yield
    finally:
        _HEAD.reset(token)


def logits_of(output: Any) -> Tensor | None:
    """Return a model's output itself if it is a tensor, or its `logits`; or the part that `head_of_output` names."""
    name = _HEAD.get()
    if name is None:
        return field_of(output, "logits")
    if callable(name):
        try:
            return name(output)
        except (AttributeError, LookupError, TypeError) as error:
            raise UnsupportedModelError(
                f"the function of task=lrptrain.Head(...) fails ({type(error).__name__}: {error}): the model returned "
                f"{described(output)}"
            ) from error
    if isinstance(output, (list, tuple)) and isinstance(name, int):
        found = output[name] if -len(output) <= name < len(output) else None
        return found if isinstance(found, Tensor) else None
    return None if isinstance(output, Tensor) else field_of(output, str(name))


def read_logits(output: Any, samples: int) -> Float[Tensor, "batch classes"]:
    """Take the logits out of a model's output; one number per sample, `[batch]`, is one logit.

    Within `one_logit_as` one logit is read by its view.
    """
    logits = logits_of(output)
    if (
        not isinstance(logits, Tensor)
        or logits.ndim not in (1, 2)
        or len(logits) != samples
        or not logits.is_floating_point()
    ):
        raise UnsupportedModelError(_no_logits(output, logits, samples))
    check_not_nan(logits, "logits")
    logits = logits if logits.ndim == 2 else logits.unsqueeze(1)
    view = applied_view(output)
    if view is None:
        return logits
    if is_sigmoid(logits):
        raise UnsupportedModelError(
            "the model's output is the sigmoid of a logit, a probability, and would be read as a logit: let it return "
            "the logit, and train it with binary_cross_entropy_with_logits, which rounds less, too"
        )
    return view(logits if view.column is None else logits[:, view.column : view.column + 1])


_SAME_NUMBERS = (
    "ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0", "SqueezeBackward1",
    "UnsqueezeBackward0", "SelectBackward0", "SliceBackward0", "ToCopyBackward0", "CloneBackward0", "AliasBackward0",
)  # fmt: skip


def is_sigmoid(numbers: Tensor) -> bool:
    """Return whether numbers are what a sigmoid returned, as far as their graph tells; False without a graph."""
    node = numbers.grad_fn
    while node is not None and node.name() in _SAME_NUMBERS:
        node = node.next_functions[0][0]
    return node is not None and node.name() == "SigmoidBackward0"


def applied_view(output: Any) -> LogitView | None:
    """Return the view by which the logits of an output are read, or None where they are read as they are."""
    view = active_view()
    if view is None or view.of_steps or (view.column is None and has_one_logit(output)):
        return view
    if view.column is None and not view.required:
        return None
    logits = logits_of(output)
    if view.column is not None and logits is not None and logits.ndim == 2 and logits.shape[1] > view.column:
        return view
    needed = "one number per sample" if view.column is None else f"logits of more than {view.column} labels"
    raise UnsupportedModelError(
        f"the task reads {needed}, and the model returned {described(output)}: task='classes' takes a logit for each "
        "class"
    )


def has_one_logit(output: Any) -> bool:
    """Return whether the logits of a model's output are one number per sample, `[batch]` or `[batch, 1]`."""
    logits = logits_of(output)
    return logits is not None and (logits.ndim == 1 or logits.shape[1:] == (1,))


MOST_HEADS = 4
"""So many heads are named."""


def _no_logits(output: Any, logits: Tensor | None, samples: int) -> str:
    heads = _heads(output, samples)
    if callable(_HEAD.get()):
        return (
            f"the function of task=lrptrain.Head(...) must return logits [batch, classes] (here [{samples}, classes]); "
            f"it returned {described(logits)}, and the model {described(output)}"
        )
    if _HEAD.get() is not None:
        return (
            f"task=lrptrain.Head({_HEAD.get()!r}) names no logits [batch, classes] (here [{samples}, classes]): the "
            f"model returned {described(output)}" + (f"; it may be one of {heads}" if heads else "")
        )
    way_out = "target=lambda output: ... (one number per sample, [batch])"
    if logits is not None and logits.ndim > 2 and len(logits) == samples and logits.is_floating_point():
        axes = logits.ndim - 1
        way_out = f"target=({', '.join('ijk'[:axes] if axes < 4 else ['i', '...'])}), one index per axis, or {way_out}"
    trained = (
        f"a monitor and guidance take task={' or '.join(f'lrptrain.Head({each!r})' for each in heads[:MOST_HEADS])}"
        if heads
        else "a monitor and guidance explain one class per sample, and none of this is logits [batch, classes]"
    )
    return (
        f"the model must return logits [batch, classes] (here [{samples}, classes]) or an object with .logits; it "
        f"returned {described(output)}: attribute takes {way_out}; {trained}"
    )


def _heads(output: Any, samples: int) -> list[str | int]:
    """Return the names, or the numbers in a tuple, of what may be logits of classes."""
    entries: Iterable[tuple[str | int, Any]] = named_fields(output).items()
    if isinstance(output, (list, tuple)) and not hasattr(output, "_fields"):
        entries = enumerate(output)
    return [
        name
        for name, x in entries
        if isinstance(x, Tensor) and x.ndim == 2 and len(x) == samples and x.is_floating_point()
    ]


def check_not_nan(numbers: Float[Tensor, "batch ..."], what: str) -> None:
    """Raise if the numbers that are to be explained are NaN."""
    if numbers.isnan().any():
        rows = numbers.isnan().flatten(1).any(1) if numbers.ndim > 1 else numbers.isnan()
        raise NonFiniteError(
            f"the {what} of samples {rows.nonzero().flatten().tolist()[:10]} are NaN: there is no class to explain; "
            "check these samples of the input, and the model's weights, for NaN"
        )
