"""A forward pass for gradients at the input and for answers alone: no operation is recorded.

It serves what needs no tape. Where a model does what only a tape can follow, or refuse by name, the pass says so by
`NeedsTape`, and the model is run again on a tape.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lrptrain.relevance.fast.walk import once_per_walk, own_attributes_of
from lrptrain.relevance.model.process_wide import eager, in_turn
from lrptrain.relevance.tape.functions import (
    BACKWARD,
    DETACHING,
    EXPORTS,
    FLEX_ATTENTION,
    FUNCTIONS,
    HASHING,
    REORDERED,
    WEIGHTED,
    as_python,
    canonical_name,
    hands_out,
    is_in_place,
    is_transforming,
    without_graph,
    without_weights,
)
from lrptrain.relevance.tape.lookup import (
    READING_ROWS,
    AnotherTable,
    Table,
    as_lookup,
    first_lookup,
    later_lookup,
    lookup_arguments,
    lookup_in,
)
from lrptrain.relevance.tape.nodes import Value, numbers_in, shares_memory
from lrptrain.relevance.tape.ordered_gradients import NORMS, with_ordered_gradient
from lrptrain.relevance.tape.text_lookups import TextLookups
from lrptrain.relevance.tokens.inputs import ExplainedInput, text_input

# After these, numbers may continue where no gradient follows them: in numpy, in memory that a kernel fills.
_FOR_THE_TAPE = EXPORTS | BACKWARD | {"empty", "empty_like", "empty_strided", "new_empty", "resize", FLEX_ATTENTION}

# Calls that are looked at one by one; all others are carried out as they are.
_LOOKED_AT = _FOR_THE_TAPE | WEIGHTED | READING_ROWS | NORMS | {"embedding", "set_grad_enabled", "requires_grad"}

_PLAIN = frozenset({bool, int, float, str, tuple})
_NO_TENSORS = frozenset({bool, int, float, type(None), torch.Size, torch.device, torch.dtype})
MOST_KNOWN = 16
"""Inputs of so many shapes are known of a model at a time; each takes 8 bytes a pixel."""
_known: WeakKeyDictionary[nn.Module, dict[Hashable, ExplainedInput]] = WeakKeyDictionary()


@lru_cache(FUNCTIONS)
def is_looked_at(func: Callable[..., Any]) -> bool:
    """Return whether a plain pass looks at a call one by one."""
    return func in REORDERED or hands_out(func) or canonical_name(func) in _LOOKED_AT


class NeedsTape(Exception):  # noqa: N818
    """A model does what only a tape can follow, or refuse by name."""


@dataclass(eq=False)
class Lookups(TorchFunctionMode):
    """Gives a model other word embeddings than it looks up, and lets it switch no gradients off."""

    token_ids: Tensor | None
    embeddings: Tensor | None = None
    others: tuple[Tensor, ...] = ()
    tables: tuple[Table, ...] = ()
    _table: Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry out one call of the model."""
        kwargs = kwargs or {}
        if not is_looked_at(func):
            result = func(*args, **kwargs)
            # What has a graph has not lost it, and is no hash of ids.
            if type(result) in _NO_TENSORS or (type(result) is Tensor and result.requires_grad):
                return result
            return self._looked_through(canonical_name(func), func, args, kwargs, result)
        if not kwargs and func in REORDERED:
            func, args = as_python(func, args)
        name = canonical_name(func)
        if name == "set_grad_enabled":
            return None
        if self.token_ids is not None and name in READING_ROWS and not is_transforming():
            lookup = as_lookup(name, args, self.token_ids, is_first=self._table is None)
            if lookup is not None:
                with self:
                    return lookup()
        args = self._prepared(name, func, args)
        result = self._looked_through(name, func, args, kwargs, func(*args, **kwargs))
        result = with_ordered_gradient(name, result)
        if name != "embedding" or self.token_ids is None:
            return result
        return self._looked_up(self.token_ids, *lookup_arguments(args, kwargs), result)

    def _prepared(self, name: str, func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args

    def _looked_through(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
        return result

    def _looked_up(self, text: Tensor, ids: Tensor, table: Tensor, result: Tensor) -> Tensor:
        """What the model is given in place of what it has looked up."""
        if shares_memory(ids, self.others):
            return result
        lookup = None
        if self.tables:
            lookup = lookup_in(self.tables, text, ids, table)
        elif self._table is None:
            lookup = first_lookup(text, ids)
            self._table = None if lookup is None else table
        elif table is self._table:
            lookup = later_lookup(text, ids)
        if lookup is None:
            return result
        assert self.embeddings is not None
        return lookup.given(self.embeddings.to(result.dtype), result)


@dataclass(eq=False)
class PlainPass(Lookups):
    """The first pass: it finds the explained input, and notices what needs a tape.

    Attributes:
        leaf: The explained input for gradients: the image, or the word embeddings.
        root: The explained input as the model received it.
        text: How the explained text is looked up.
        differentiable: Whether a graph of the weights is kept: none.
        kernels: No attention is recorded.
        only_answers: Whether nobody asks for gradients, which the model has not everywhere.
    """

    leaf: Tensor | None = field(default=None, init=False)
    root: Value | None = field(default=None, init=False)
    differentiable: bool = field(default=False, init=False)
    kernels: None = field(default=None, init=False)
    only_answers: bool = field(default=False, init=False)
    _is_first: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.text = TextLookups(self.token_ids, self.others)

    def watch(self, tensor: Tensor) -> Tensor:
        """Declare `tensor` as the explained input and return what the model is to be given in its place."""
        self.leaf = tensor.detach().requires_grad_()
        with torch.enable_grad():
            self.embeddings = self.leaf.clone()
        self.root = Value(self.embeddings, depends=True)
        return self.embeddings

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Run the model inside."""
        with in_turn(), eager(), left_to_the_tape(), self:
            yield
        if self.root is None:
            raise NeedsTape

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Take a gradient inside, which may run checkpointed blocks again."""
        self._is_first = False
        with left_to_the_tape(), self:
            yield

    reporting_functions = replaying

    def explained(
        self, model: nn.Module, inputs: Any, explain: str | None, find: Callable[[], tuple[ExplainedInput, bool]]
    ) -> ExplainedInput:
        """What the explained input is: a text, or what a tape has found in a model that is as it was."""
        assert self.root is not None
        if self.token_ids is not None:
            return text_input(self.root)
        if model.training or (isinstance(inputs, Mapping) and "spatial_shapes" in inputs):
            return find()[0]
        return replace(explained_once(model, inputs, explain, find, len(self.root.tensor)), shape=self.root.shape)

    def as_value(self, numbers: Tensor) -> Value:
        """The logits, or what a head made of the output."""
        if not numbers.requires_grad and not self.only_answers:
            raise NeedsTape
        return Value(numbers, depends=True)

    def _prepared(self, name: str, func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._is_first and name in _FOR_THE_TAPE:
            raise NeedsTape
        given = without_graph(func, args) if hands_out(func) else args
        return without_weights(name, given) if name in WEIGHTED else given

    def _looked_through(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
        if self._is_first and not (type(result) is Tensor and result.requires_grad):
            if torch.is_inference_mode_enabled():
                raise NeedsTape
            if name in HASHING and self.token_ids is not None and not is_in_place(func, args, kwargs):
                self.text.note_hash(func, args, kwargs, result)
            goes_on = self.only_answers or name in DETACHING or not torch.is_grad_enabled()
            if not goes_on and _loses_the_graph((args, kwargs), result):
                raise NeedsTape
        return result

    def _looked_up(self, text: Tensor, ids: Tensor, table: Tensor, result: Tensor) -> Tensor:
        try:
            lookup = self.text.of(ids, table, is_first=self.root is None)
        except AnotherTable as found:
            raise NeedsTape from found
        if lookup is None:
            return result
        if self.root is None:
            self._table = table
            self.watch(lookup.taken(result))
        assert self.embeddings is not None
        read = lookup.given(self.embeddings.to(result.dtype), result)
        return read.clone() if read is self.embeddings else read


def explained_once(
    model: nn.Module, inputs: Any, explain: str | None, find: Callable[[], tuple[ExplainedInput, bool]], samples: int
) -> ExplainedInput:
    """Return what the explained input is, as found in a model that is as it was, or now; of several samples any."""
    key = (explain, _described(inputs, samples), _as_it_is(model))
    known = _known.setdefault(model, {})
    if key in known:
        return known[key]
    explained, lasts = find()
    if lasts:
        if len(known) == MOST_KNOWN:
            del known[next(iter(known))]
        # Without the tape's values, which would be kept alive.
        known[key] = replace(explained, cells=None, order=None)
    return explained


@contextmanager
def left_to_the_tape() -> Iterator[None]:
    """Leave an error inside to the tape, which may know the reason."""
    try:
        yield
    except (torch.OutOfMemoryError, NeedsTape):
        raise
    except Exception as error:  # a model's own code may raise anything
        raise NeedsTape from error


def _loses_the_graph(arguments: Any, result: Any) -> bool:
    if all(x.requires_grad for x in numbers_in(result)):
        return False
    return any(x.requires_grad for x in numbers_in(arguments))


def _described(x: Any, samples: int) -> Hashable:
    """What tells arguments apart, but for the numbers in tensors, and for how many samples there are beyond one."""
    if isinstance(x, Tensor):
        shape = ("several" if samples > 1 else "one", *x.shape[1:]) if x.shape[:1] == (samples,) else x.shape
        return shape, x.dtype, x.device
    if isinstance(x, Mapping):
        return tuple((name, _described(each, samples)) for name, each in x.items())
    return tuple([_described(each, samples) for each in x]) if isinstance(x, (tuple, list)) else repr(x)


@once_per_walk
def _as_it_is(model: nn.Module) -> Hashable:
    """What of a model decides where its tokens come from: its modules, their settings, the shapes of their weights."""
    return tuple([_settings(module, own) for _, module, own in own_attributes_of(model)])


def _settings(module: nn.Module, own: list[tuple[str, Any]]) -> Hashable:
    shapes = tuple([x.shape for x in module._parameters.values() if x is not None])
    settings = tuple([(name, repr(x) if type(x) is tuple else x) for name, x in own if type(x) in _PLAIN])
    hooks = (*module._forward_hooks, *module._forward_pre_hooks)
    return type(module), id(module), id(vars(module).get("forward")), hooks, shapes, settings
