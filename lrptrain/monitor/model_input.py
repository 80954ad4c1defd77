"""What the user's own step gives the model: the call that is heard there is the one that is made again for the maps."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.batch import IMAGES, model_inputs
from lrptrain.batch.call import (
    ARGUMENT,
    CALL,
    TEXTS,
    batch_length,
    bound_arguments,
    candidates,
    entry_of,
    parameters_below,
    required_parameters,
    split_call,
)
from lrptrain.batch.in_place import in_place
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.monitor.strategy_answers import StrategyAnswers
from lrptrain.relevance.model.one_sample import bare_arguments
from lrptrain.relevance.model.preserve import preserved, unwrap
from lrptrain.relevance.notices import warn_once
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.relevance.sharding.shards import is_sharded
from lrptrain.relevance.tape.nodes import map_nested
from lrptrain.trainers.continuation import Continuation, way_out
from lrptrain.trainers.discover import choice, choice_of_parts, parts, whole_batch

_MOST_HEARD = 16
"""So many calls of a step are kept, as one that writes a text must not fill the memory: a choice, above those that a
step needs for one batch."""
_SAME, _SAME_IN_HALF = 1e-5, 0.01
"""Tensors that differ relatively by no more are equal: by roundings of float32, or by one of bfloat16, whose eps is
0.008."""
_OF_THE_LOSS = ("label", "labels", "start_positions", "end_positions", "num_items_in_batch")


class InputListener:
    """Notes the arguments that a model is called with, until it is told to stop. It changes nothing.

    A step may call a part of the model, such as `self.net`, instead of the model, which has a forward of its own: the
    model's children are listened to, too. A compiled model is not: what listens would be compiled with it.

    Attributes:
        calls: The arguments of each call by parameter, as far as they have names; tensors are copies.
        heard_below: The tensors of all calls of each child with parameters, while the model itself is not called.
        whole: Whether a call had the whole batch as an argument.
        unnamed: Whether several arguments of a call have no names, as those of `forward(self, *inputs)`.
        given: The places in a tuple of what the model was given.
        continuation: What the step does with the output; None where nobody asks.
    """

    def __init__(
        self, model: nn.Module, batch: Any = None, answers: bool = True, root: nn.Module | None = None
    ) -> None:
        self.calls: list[dict[str, Any]] = []
        self.heard_below: dict[str, list[Tensor]] = {}
        self.called = False
        self.whole = False
        self.unnamed = False
        self.given: set[int] = set()
        self.model = model
        self._batch = batch
        inner = unwrap(model)
        compiled = hasattr(model, "_orig_mod") or inner._compiled_call_impl is not None
        self.listens = not compiled
        self.answers = StrategyAnswers(model) if answers and is_sharded(model) and not compiled else None
        self._handles = [] if compiled else [inner.register_forward_pre_hook(self._note, with_kwargs=True)]
        self.continuation = None if root is None or compiled else Continuation(model, root)
        for name, child in () if compiled else parts(inner).items():
            if child._compiled_call_impl is None and not hasattr(child, "_orig_mod"):
                note = partial(self._note_below, name)
                self._handles.append(child.register_forward_pre_hook(note, with_kwargs=True))

    def stop(self) -> None:
        """Listen no longer."""
        for handle in self._handles:
            handle.remove()
        if self.answers is not None:
            self.answers.stop()
        if self.continuation is not None:
            self.continuation.stop()
        self._batch = None

    def _note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # With DDP, Lightning calls a step as the module's forward, which it exchanges for that call.
        exchanged = getattr(vars(module).get("forward"), "__module__", None) or ""
        if exchanged.partition(".")[0] in ("lightning", "pytorch_lightning", "lightning_fabric"):
            return
        self.called = True
        values = (*args, *kwargs.values())
        self.whole |= not isinstance(self._batch, Tensor) and any(value is self._batch for value in values)
        if isinstance(self._batch, tuple | list):
            self.given |= {i for i, each in enumerate(self._batch) if any(value is each for value in values)}
        arguments = bound_arguments(module, args, kwargs)
        self.unnamed |= arguments is None and len(args) > 1
        if arguments is not None and len(self.calls) < _MOST_HEARD:
            self.calls.append(map_nested(arguments, Tensor, _copy))

    def _note_below(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        heard = self.heard_below.setdefault(name, [])
        if not self.called and len(heard) < _MOST_HEARD:
            heard += _copies(args, kwargs)


def _copy(x: Tensor) -> Tensor:
    return x.detach().clone()


def _copies(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    return [_copy(value) for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]


def copied(batch: Any) -> Any:
    """Return a copy of a batch, which a step may change in place; the batch itself where it cannot be copied."""
    try:
        # A tensor that is made in inference mode has no versions, and is no harm to a copy that nobody writes to.
        return copy.deepcopy(batch)
    except Exception:  # of a class that forbids it, or of tensors with a graph
        return batch


def without_given(batch: Any, listener: InputListener) -> Any:
    """Return a tuple without all but the first of the parts that the model was given: what is left are labels."""
    first = min(listener.given, default=0)
    if not isinstance(batch, tuple | list) or len(listener.given) < 2:
        return batch
    rest = [each for i, each in enumerate(batch) if i not in listener.given]
    return (batch[first], *rest)


def with_call(
    listener: InputListener, batch: Mapping[str, Any], explain: str | None, step: str, bare: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a batch in the contract's form with the arguments that the model was really given.

    `explain` names the parameter whose argument is explained; without it, that is the one that the batch calls its
    input, or the only one that can be. `bare` names those that took a sample without a batch axis in batches before.
    """
    if listener.whole:
        raise ValueError(whole_batch(listener.model))
    if listener.continuation is not None:
        listener.continuation.check(step)
    if listener.unnamed and not listener.calls:
        raise ValueError(
            f"the forward of {type(unwrap(listener.model)).__name__} takes *args, which have no names: name the "
            f"network that it calls, {choice_of_parts(listener.model)}"
        )
    if not listener.called and listener.listens:
        _check_parts(listener, batch, step)
    chosen = _chosen(listener, batch, explain, step, bare)
    if chosen is None:
        if not any(name in batch for name in (*IMAGES, "input_ids")):
            raise ValueError(
                f"no input in a batch with {list(batch)}: it needs 'image' or 'pixel_values', or 'input_ids'; pass "
                "batch_adapter=... to rename its entries"
            )
        return dict(batch)
    arguments, name, without_axis = chosen
    found = _as_call(listener.model, batch, arguments, name)
    return {**found, CALL: replace(found[CALL], bare=without_axis)}


def by_names(model: nn.Module, batch: Mapping[str, Any], explain: str) -> dict[str, Any]:
    """Return a batch in the contract's form whose entries go to the parameters of their names."""
    needed = required_parameters(model)  # such as a mask that tells padding
    entries = {name.removeprefix(ARGUMENT): x for name, x in batch.items() if name not in ANNOTATIONS or name in needed}
    known = parameters_below(model)
    arguments = {name: x for name, x in entries.items() if name in known and isinstance(x, Tensor)}
    if explain not in arguments:
        call = f"model(batch[{explain!r}]), and leave explain= out" if explain in entries else "..."
        raise ValueError(
            f"explain={explain!r} is no entry of the batch that {type(unwrap(model)).__name__} has a parameter for: "
            f"these are {sorted(arguments)}; where the model is called otherwise, pass step=lambda model, batch: {call}"
        )
    return _as_call(model, batch, arguments, explain)


def _as_call(model: nn.Module, batch: Mapping[str, Any], arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a batch in the contract's form with the arguments of a call, of which one is explained."""
    value = arguments[name]
    # A loss that the model computes from labels is not asked for, where it can do without.
    needed = (name, *required_parameters(model))
    arguments = {key: x for key, x in arguments.items() if key not in _OF_THE_LOSS or key in needed}
    call, columns = split_call(arguments, name, len(value))
    entry = entry_of(batch, name, value)
    rest = {key: x for key, x in batch.items() if key not in (*IMAGES, *TEXTS) and not key.startswith(ARGUMENT)}
    # Of two texts, these are those of the one of that name.
    named = TEXTS if entry == "input_ids" and (name == entry or entry not in columns) else ()
    if named:  # which tokens are padding, also where the model is not told
        rest |= {key: x for key, x in batch.items() if key in TEXTS[1:]}
    own = {key if key in named else f"{ARGUMENT}{key}": x for key, x in columns.items()}
    return {**rest, entry: value, **own, CALL: call}


def _chosen(
    listener: InputListener, batch: Mapping[str, Any], explain: str | None, step: str, bare: Sequence[str]
) -> tuple[dict[str, Any], str, tuple[str, ...]] | None:
    """Return the call that is made again, the parameter that is explained, and those without a batch axis.

    None if no call is one of the batch. The surest sign comes first: the argument that `explain` names; of a batch of
    one sample, an argument without a batch axis; the very tensor that the batch calls its input; and last the only
    argument `[batch, ...]` that may be that tensor, changed by the step.
    """
    rows = {name: x for name, x in batch.items() if name != CALL and not name.startswith(ARGUMENT)}
    length = batch_length(rows) if rows else None
    if explain is not None:
        return _named(listener, explain, step, is_one=length == 1, was_bare=explain in bare)
    ours = next(((name, batch[name]) for name in (*IMAGES, "input_ids") if name in batch), None)
    possible = [(arguments, candidates(arguments, length)) for arguments in listener.calls]
    possible = [each for each in possible if each[1]]
    if length == 1 and ours is None and (bare or not possible):
        bags = [(each, name) for each in listener.calls for name, x in each.items() if _is_bag(x, name in bare)]
        return _with_batch_axis(*bags[0]) if len(bags) == 1 else None
    if ours is not None:
        name, value = ours
        if length == 1 and value.ndim > 2 and (alone := _call_with(listener.calls, value[0])) is not None:
            return _with_batch_axis(*alone)
        # Where the model was called several times, as in a test-time augmentation, the call with the batch is it.
        if (same := _call_with([arguments for arguments, _ in possible], value)) is not None:
            arguments, given = same
            return arguments | {given: value.to(arguments[given].device)}, given, ()
        alike = [
            (each, {key: x for key, x in found.items() if _comparable(x, name, value)}) for each, found in possible
        ]
        possible = [each for each in alike if each[1]]
    if not possible:
        return None
    arguments, found = possible[0]
    if len(found) > 1:
        raise ValueError(
            f"{step} gives the model {' and '.join(map(repr, found))}, each of which could be explained: say which by "
            f"explain={next(iter(found))!r}"
        )
    ((given, theirs),) = found.items()
    if ours is not None:
        _check_aligned(theirs, ours[1], ours[0], batch, step)
    is_image = theirs.ndim > 2 and not theirs.is_floating_point() and (ours is None or ours[0] in IMAGES)
    return arguments | ({given: theirs.float()} if is_image else {}), given, ()


def _named(
    listener: InputListener, explain: str, step: str, is_one: bool, was_bare: bool
) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """Return the first call with a tensor of that name, as `_chosen` does."""
    for arguments in listener.calls:
        if isinstance(value := arguments.get(explain), Tensor):
            is_bag = is_one and _is_bag(value, was_bare)
            return _with_batch_axis(arguments, explain) if is_bag else (arguments, explain, ())
    heard = sorted({name for call in listener.calls for name, x in call.items() if isinstance(x, Tensor)})
    raise ValueError(f"explain={explain!r} is no tensor that {step} gives the model; it gives {heard}")


def _call_with(calls: Sequence[dict[str, Any]], value: Tensor) -> tuple[dict[str, Any], str] | None:
    """Return the first call with this very tensor, and its parameter."""
    given = ((call, name) for call in calls for name, x in call.items() if isinstance(x, Tensor) and _same(x, value))
    return next(given, None)


def _is_bag(value: Any, was_one: bool) -> bool:
    """Return whether an argument may be one bag `[rows, numbers]`, of a batch that holds one label."""
    is_table = isinstance(value, Tensor) and value.ndim == 2 and value.is_floating_point()
    return is_table and (len(value) > 1 or was_one)


def _with_batch_axis(arguments: Mapping[str, Any], explained: str) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """Return the call of a model of one sample as one of a batch: what has as many rows as it gets a batch axis."""
    bare = bare_arguments(arguments, explained)
    return {name: x[None] if name in bare else x for name, x in arguments.items()}, explained, bare


def _comparable(theirs: Tensor, name: str, ours: Tensor) -> bool:
    """Return whether an argument may be what the batch calls its input, changed."""
    if name == "input_ids":
        return theirs.shape == ours.shape and theirs.is_floating_point() == ours.is_floating_point()
    return theirs.ndim == ours.ndim and len(theirs) == len(ours)


def _check_aligned(theirs: Tensor, ours: Tensor, name: str, batch: Mapping[str, Any], step: str) -> None:
    """Reject images that the step has moved, so that annotations lie elsewhere; other colours move nothing."""
    if not any(each in batch for each in ANNOTATIONS) or (theirs.shape == ours.shape and in_place(theirs, ours).all()):
        return
    raise ValueError(
        f"{step} gives the model other values than {name!r} of the batch ({_described(theirs)}, not "
        f"{_described(ours)}), in which its annotations may lie elsewhere. Resize, crop and flip in the dataset or in "
        "on_after_batch_transfer, images and masks alike, or let batch_adapter= do so"
    )


def _check_parts(listener: InputListener, batch: Mapping[str, Any], step: str) -> None:
    """Check that a step which calls parts of the model gives them what the model's own forward does."""
    if not listener.heard_below or not any(name in batch for name in (*IMAGES, "input_ids")):
        return  # the step runs no part of the model
    model = unwrap(listener.model)
    found = _heard_in_forward(model, batch)
    if found is None:
        return  # the model does not run: that is told where it is explained
    forward, output = found
    for name, heard in listener.heard_below.items():
        if any(_same(x, output) for x in heard):
            raise ValueError(
                f"{step} gives what the forward of {type(model).__name__} returns to {name!r}, so that it is no "
                f"logits: {way_out(model, step)}"
            )
    name, ours = next((name, batch[name]) for name in (*IMAGES, "input_ids") if name in batch)
    shared = [
        (theirs, own)
        for part, heard in listener.heard_below.items()
        if (theirs := [x for x in heard if _comparable(x, name, ours)])
        and (own := [x for x in forward.get(part, []) if _comparable(x, name, ours)])
    ]
    if not shared:
        names = list(listener.heard_below)
        meant = f"which module does it call? {choice(names)}" if len(names) == 1 else way_out(model, step)
        message = f"{step} never calls {type(model).__name__}, which is explained; {meant}"
        warn_once(model, ("never called", step), message)
    elif not any(_same(x, y) for theirs, own in shared for x in theirs for y in own):
        theirs, own = shared[0]
        raise ValueError(
            f"{step} gives the model other values than {name!r} of the batch ({_described(theirs[0])}, not "
            f"{_described(own[0])} as its forward does): let the step call the model itself, or leave model= out"
        )


def _heard_in_forward(model: nn.Module, batch: Mapping[str, Any]) -> tuple[dict[str, list[Tensor]], Tensor] | None:
    """Return what the children of a model get from its forward with a batch, and its logits; None if it fails."""
    heard: dict[str, list[Tensor]] = {name: [] for name in parts(model)}

    def note(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        heard[name] += _copies(args, kwargs)

    with ExitStack() as hooks:
        for name, child in parts(model).items():
            hooks.enter_context(child.register_forward_pre_hook(partial(note, name), with_kwargs=True))
        with suppress(Exception), torch.no_grad(), preserved(model):
            inputs = model_inputs(model, batch)
            output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
            return heard, read_logits(output, batch_length(batch))
    return None


def check_bytes(model: nn.Module, batch: Mapping[str, Any], listener: InputListener, step: str) -> None:
    """Reject images of bytes that the model takes otherwise than the same numbers as floats, which maps are made of."""
    name = next((name for name in IMAGES if name in batch), "")
    heard = [x for call in listener.calls for x in call.values() if isinstance(x, Tensor)]
    images = [x for x in heard if name and x.dtype == torch.uint8 and x.shape == batch[name].shape]
    if not images:
        return
    with torch.no_grad():
        of_bytes = read_logits(model(images[0]), len(images[0]))
        of_floats = read_logits(model(batch[name].to(images[0].device)), len(images[0]))
    if not _same(of_bytes, of_floats):
        raise ValueError(
            f"{step} gives the model {name!r} as bytes ({_described(images[0])}), which it takes otherwise than the "
            f"same numbers as floats, of which maps are made: let the dataset give floats (x.float() / 255)"
        )


def _same(theirs: Tensor, ours: Tensor) -> bool:
    """Return whether two tensors are equal, as far as the coarser of their types can tell."""
    if theirs.shape != ours.shape:
        return False
    coarse = any(x.is_floating_point() and x.element_size() < 4 for x in (theirs, ours))
    tolerance = _SAME_IN_HALF if coarse else _SAME
    return torch.allclose(theirs.double(), ours.to(theirs.device).double(), rtol=tolerance, atol=1e-6, equal_nan=True)


def _described(values: Tensor) -> str:
    numbers = values.double()
    kind = str(values.dtype).removeprefix("torch.")
    return f"{kind} {list(values.shape[1:])} in {float(numbers.min()):.3g}..{float(numbers.max()):.3g}"
