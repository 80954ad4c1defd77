"""Recording of an ordinary forward pass: every torch function that the input flows through.

A `TorchFunctionMode` sees the calls of an unmodified model. Fused attention is replaced by its explicit form, so that
the attention probabilities are tensors of the autograd graph, whichever backend the model chose; or, of long sequences
where no graph of the weights is asked for, it stays fused, and is on the tape in explicit form all the same (see
`kernels`).
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode

from lrptrain.relevance.fast.kernels import KernelAttention, KernelError, Kernels, operations
from lrptrain.relevance.model.process_wide import eager, in_turn
from lrptrain.relevance.tape.explicit import EXPLICIT
from lrptrain.relevance.tape.functions import (
    AS_ANOTHER,
    BACKWARD,
    CHOOSING,
    CONSTANT,
    DECOMPOSED,
    DENSE,
    DETACHING,
    ELEMENTWISE,
    EXPORTS,
    FLEX_ATTENTION,
    HASHING,
    OF_FIRST,
    OVERWRITING,
    QUESTIONS,
    REORDERED,
    REPEATABLE,
    WEIGHTED,
    as_python,
    canonical_name,
    enterable,
    hands_out,
    is_in_place,
    is_of_torch,
    is_transforming,
    sets_no_numbers,
    transformation,
    unwrapped,
    without_graph,
    without_weights,
)
from lrptrain.relevance.tape.graph_places import GraphPlaces
from lrptrain.relevance.tape.lookup import READING_ROWS, Lookup, Order, Table, as_lookup, embedded_in, lookup_arguments
from lrptrain.relevance.tape.memory import ALLOTTING, Buffers, SharedMemory, copied, places, put
from lrptrain.relevance.tape.nodes import (
    Node,
    Value,
    collect_tensors,
    is_idle,
    making,
    map_nested,
    numbers_in,
    shares_memory,
    tensors_in,
    version_of,
)
from lrptrain.relevance.tape.ordered_gradients import NORMS, with_ordered_gradient
from lrptrain.relevance.tape.running import RunningModule
from lrptrain.relevance.tape.text_lookups import TextLookups
from lrptrain.relevance.types import UnsupportedModelError, UnsupportedOperationError

# Of some of their tensors they read no numbers.
_READING_FEW = OF_FIRST | OVERWRITING
# The custom autograd function of reentrant checkpoints, which has no gradient for `torch.autograd.grad`.
_CHECKPOINT = "CheckpointFunctionBackward"


@dataclass(eq=False)
class Tape(TorchFunctionMode):
    """Records while it is entered (`with tape.recording(model)`); see the module's docstring.

    Attributes:
        nodes: The recorded calls, in order.
        root: The explained input, the image or the word embeddings, as the model received it.
        leaf: The explained input for gradients; later writing in place does not touch it.
        differentiable: Whether to keep the graph of the weights, not only what maps need.
        kernels: The fused attention that stays fused; None to write all of it out.
        text: How the explained text is looked up.
    """

    nodes: list[Node] = field(default_factory=list)
    root: Value | None = None
    leaf: Tensor | None = None
    differentiable: bool = True
    kernels: Kernels | None = None
    text: TextLookups = field(default_factory=TextLookups)

    def __post_init__(self) -> None:
        super().__init__()
        # By the id of a tensor: its value, a reference that tells whether the id is still this tensor's, and its
        # grad_fn, which tells whether something outside of torch's functions has changed the tensor since.
        self._entries: dict[int, tuple[Value, ref[Tensor], Any]] = {}
        # By storage: all values that share it, since writing into one of them changes the others.
        self._aliases: dict[int, list[Value]] = {}
        # By storage, where an activation was written in place: which tensors may have changed with another.
        self._memories: dict[int, SharedMemory] = {}
        # What the model allotted, which a kernel may fill.
        self._buffers = Buffers()
        # The places in the graph of all that depends on the input.
        self._places = GraphPlaces()
        # Which module runs now; None where nothing is recorded.
        self._running: RunningModule | None = None
        # Whether a custom autograd function, with a backward pass of its own, made something of the input.
        self._has_functions = False
        # The operations whose numbers have decided whether they are an activation, or a softmax, together.
        self.judged: set[Node] = set()
        # Whether the model itself wants a graph. What depends on the input has one in any case.
        self._graph = True

    def watch(self, tensor: Tensor) -> Tensor:
        """Declare `tensor` as the explained input and return what the model is to be given in its place."""
        self.leaf = tensor if tensor.requires_grad else tensor.detach().requires_grad_()
        with torch.enable_grad():
            copy = self.leaf.clone()
        if self.leaf.grad_fn is not None:
            self._places.add(self.leaf.grad_fn)
        self.root = self._remember(copy, depends=True)
        return copy

    def know(self, constants: Iterable[Tensor]) -> None:
        """Take tensors with a graph of their own, such as weights computed from others, for constants of the pass."""
        for tensor in constants:
            self._remember(tensor, depends=False)

    @contextmanager
    def recording(self, model: nn.Module) -> Iterator[None]:
        """Record the calls made inside; module paths in messages are those of `model`."""
        self._running = RunningModule(model)
        self._graph = True
        try:
            with in_turn(), eager(), self:
                yield
            self.text.check()
        finally:
            self._running = None

    def for_replay(self) -> "Tape":
        """Return a tape that holds nothing, in which a backward pass computes checkpointed blocks as this one did."""
        return Tape(
            differentiable=self.differentiable, kernels=None if self.kernels is None else Kernels(self.kernels.twice)
        )

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Keep attention explicit, without recording, while a backward pass computes a checkpointed block again."""
        with self.reporting_functions(), self:
            yield

    @contextmanager
    def reporting_functions(self) -> Iterator[None]:
        """Say of an error of a backward pass that it may be that of the model's custom autograd functions."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if not self._has_functions:
                raise
            message = " ".join(str(error).split())
            raise UnsupportedModelError(
                f"a gradient goes through a custom autograd function of the model, of which the backward pass fails: "
                f"{type(error).__name__}: {message}"
            ) from error

    def value_of(self, tensor: Tensor) -> Value | None:
        """The recorded value that `tensor` is, or None."""
        entry = self._entries.get(id(tensor))
        return entry[0] if entry is not None and entry[1]() is tensor else None

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables in which the text is looked up, if it is more than the one."""
        return self.text.tables

    @property
    def token_ids(self) -> Tensor | None:
        """The explained text, or None for other inputs."""
        return self.text.ids

    def keep_only(self, output: Value) -> None:
        """Forget the operations that `output` does not come from."""
        self.nodes = making(self.nodes, [output])

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry out one call of the model, and record it."""
        kwargs = kwargs or {}
        name = canonical_name(func)
        if name in QUESTIONS:
            return func(*args, **kwargs)
        if not kwargs and func in REORDERED:
            func, args = as_python(func, args)
        if self._running is not None and self.text.ids is not None and name in READING_ROWS and not is_transforming():
            lookup = as_lookup(name, args, self.text.ids, is_first=self.root is None)
            if lookup is not None:
                with self:
                    return lookup()
        if name in EXPLICIT or name in DECOMPOSED or name in BACKWARD:
            result = self._in_parts(name, func, args, kwargs)
            if result is not NotImplemented:
                return result
        if name == FLEX_ATTENTION or (
            name == "requires_grad" and sys._getframe(1).f_code.co_name == "_validate_device"
        ):
            raise self._unsupported(FLEX_ATTENTION, "is not written out (take F.scaled_dot_product_attention)")
        if self._running is None or name == "requires_grad" or sets_no_numbers(func):
            return with_ordered_gradient(name, func(*self._kept(name, args), **kwargs))
        if name == "set_grad_enabled":
            # `torch.no_grad()` inside of a model: noted for constants, but the input keeps its graph.
            self._graph = args[0]
            return None
        if name == "setitem" and not is_transforming() and _stands_there(*args):
            return None
        return self._record(name, func, args, kwargs)

    def _in_parts(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that is written out in others; NotImplemented where it is not."""
        if name == "scaled_dot_product_attention" and self.kernels is not None and not is_transforming():
            args, kwargs = self._with_all_heads(*args, **kwargs)
            fused = self._by_kernel(self.kernels, args, kwargs)
            if fused is not None:
                return fused
        explicit = EXPLICIT.get(name)
        if explicit is not None and not (is_in_place(func, args, kwargs) or "out" in kwargs):
            start = len(self.nodes)
            # torch leaves a mode while it handles a call; entered again, it records the parts one by one.
            with self:
                result = explicit(*args, **kwargs)
            if not self.differentiable and name == "scaled_dot_product_attention":
                self._release_scores(self.nodes[start:])
            return result  # or NotImplemented: nothing to write out
        # A backward pass outside of the recording computes checkpointed blocks again, with explicit attention.
        decomposed = name in DECOMPOSED or (name in BACKWARD and self._running is None)
        if decomposed and inspect.isfunction(func):
            with self:
                return enterable(func)(*args, **kwargs)
        return NotImplemented

    def _with_all_heads(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The arguments of fused attention in which every head of queries has its own head of keys and values."""
        if kwargs.get("enable_gqa", False):
            with self:
                key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
            kwargs = {**kwargs, "enable_gqa": False}
        return (query, key, value, *args), kwargs

    def _by_kernel(self, kernels: Kernels, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """The output of attention that stays fused, recorded as the operations that it stands for; None if it may not.

        In a backward pass, where nothing is recorded, it stays fused where it did in the forward pass.
        """
        call = kernels.call(*args, **{name: x for name, x in kwargs.items() if name != "enable_gqa"})
        if call is None:
            return None
        tensors = (call.query, call.key, call.value)
        # Queries may be the keys: the gradients at the two are told apart at views of their own.
        views = [x.view_as(x) for x in tensors]
        if self._running is None:
            return call.run(*views)
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        masks = [mask] if isinstance(mask, Tensor) else []
        for tensor in (*tensors, *masks):
            self._check(tensor, "scaled_dot_product_attention")
        # Learned queries, or a mask that is made of the input: the operations are looked at one by one. Not in this
        # call alone, as a backward pass that runs it again could not tell.
        if not all(self._depends(tensor) for tensor in tensors) or any(self._depends(x) for x in masks):
            if kernels.twice:  # a step of training is not run again for it
                return None
            raise KernelError
        nodes = operations(call, _with_values(tensors, self._values(tensors)), self._where())
        result = call.run(*views)
        nodes[-1].outputs = (self._remember(result, depends=True),)
        self.nodes.extend(nodes)
        ends = tuple(torch.autograd.graph.get_gradient_edge(view) for view in views)
        kernels.attentions.append(KernelAttention(tuple(nodes), call, ends))
        kernels.keep(tensors if kernels.twice else (*tensors, result))
        return result

    def _record(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a call, and keep what it makes.

        What it reads is checked first, then what it overwrites is saved; what it makes is noted after the call.
        """
        tensors: list[Tensor] = []
        collect_tensors(args, tensors, kwargs)
        if transformation() is not None:
            return self._transformed(name, func, args, kwargs, tensors)
        in_place = is_in_place(func, args, kwargs)
        self._check_read(name, args, kwargs, tensors)
        node = self._node(name, func, args, kwargs, tensors)
        # y.add_(1) writes into y: values that share its memory keep a copy of what they were.
        written = tensors[0] if tensors and in_place and not is_idle(node) else None
        before = None if written is None else self._save_before_overwriting(written, node, tensors)
        # An operation that writes without saying so in its name shows in the versions of its arguments.
        versions = [0 if tensor.is_inference() else tensor._version for tensor in tensors]
        with torch.set_grad_enabled(self._graph or bool(node.inputs)):
            given = without_graph(func, args) if hands_out(func) else args
            result = func(*self._kept(name, given), **kwargs)
            result = with_ordered_gradient(name, result) if name in NORMS else result
        result = written if name == "setitem" else result
        if name in HASHING and written is None:
            self.text.note_hash(func, args, kwargs, result)
        # A text's explained input is the output of its embedding, which starts the tape.
        if name == "embedding" and self.text.ids is not None:
            lookup = self.text.of(*lookup_arguments(args, kwargs), is_first=self.root is None)
            if lookup is not None:
                return self._from_root(result, lookup)  # type: ignore[arg-type]
        self._check_versions(tensors, versions, node, written)
        if name in CHOOSING and node.inputs:
            _repeat_the_choice(node, result)
        self._keep(node, result, tensors if written is None else [])
        if name in ALLOTTING:
            self._buffers.note_allotted(name, numbers_in(result))
        if written is not None:
            self._note_write(written, before)
            self._buffers.note_written(written, depends=bool(node.inputs))
        return None if name == "setitem" else result

    def _check_read(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> None:
        """Notice what happened outside of the tape to the tensors that a call reads."""
        if torch.is_inference_mode_enabled():
            raise self._unsupported(name, "runs under torch.inference_mode inside the model, which keeps no graph")
        for tensor in tensors if name not in _READING_FEW else _read(name, args, kwargs, tensors):
            entry = self._entries.get(id(tensor))
            grad_fn = tensor.grad_fn
            is_known = grad_fn is None or (entry is not None and entry[2] is grad_fn and entry[1]() is tensor)
            if self._memories or not is_known:
                self._check(tensor, name)
        for tensor in tensors if self._buffers.contents else ():
            if self._buffers.written_unseen(tensor) and not self._depends(tensor):
                raise self._unsupported(
                    name, "reads memory that was written outside of torch's functions (by a kernel?)"
                )

    def _node(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> Node:
        """A call as a node, with values in the places of the tensors that depend on the input."""
        values = self._values(tensors)
        if not values:
            return Node(name, func, args, kwargs, (), path=self._where())
        kwargs_of_node = map_nested(kwargs, Tensor, lambda x: values.get(id(x), x)) if kwargs else {}
        inputs = tuple(dict.fromkeys(values.values()))
        node = Node(name, func, _with_values(args, values), kwargs_of_node, inputs, path=self._where())
        self._check_call(node, func)
        if name in OVERWRITING and is_in_place(func, args, kwargs):
            return _overwriting(node, tensors[0])
        return _taking(node, tensors[0], partial(func, *args, **kwargs)) if name == "as_strided" else node

    def _check_call(self, node: Node, func: Callable[..., Any]) -> None:
        """Notice calls on values that no tape can follow."""
        if node.name in BACKWARD and (inspect.isfunction(func) or inspect.ismethod(func)):
            raise self._unsupported(node.name, "takes a gradient of activations inside of the forward pass")
        if node.name in EXPORTS:
            raise self._unsupported(node.name, "hands activations out of torch (to NumPy or a list)")

    def _depends(self, tensor: Tensor) -> bool:
        value = self.value_of(tensor)
        return value is not None and value.depends

    def _transformed(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> Any:
        """Carry out a call inside of `torch.func` or `vmap`, which is served for constants only (masks, say)."""
        result = func(*args, **kwargs)
        follows = any(self._depends(unwrapped(tensor)) for tensor in tensors)
        if follows and any(True for _ in numbers_in(result)):
            raise self._unsupported(name, "runs inside of torch.vmap or a transform of torch.func")
        return result

    def _kept(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call; without those that only the gradients of weights need, if there are to be none."""
        return without_weights(name, args) if not self.differentiable and name in WEIGHTED else args

    def _keep(self, node: Node, result: Any, same: list[Tensor]) -> None:
        """Remember the outputs, and the node if relevance can flow through it."""
        # What the call returns as it was given (`x.to(x.dtype)`) stays the value that it is.
        outputs: list[Tensor] = []
        for out in (result,) if type(result) is Tensor else tensors_in(result):
            if not (out.is_floating_point() or out.is_complex()):
                continue
            for tensor in same:
                if out is tensor:
                    break
            else:
                outputs.append(out)
        depends = bool(node.inputs) and node.name not in CONSTANT
        if depends and node.name in AS_ANOTHER:
            depends = not _casts_a_constant(node)
        if depends:
            self._check_outputs(node, outputs)
        if depends and outputs:
            node.outputs = tuple([self._remember(out, depends=True) for out in outputs])
            # Rules of elementwise operations read input and output only, so that their constants may change later.
            if node.name not in ELEMENTWISE:
                constants: list[Tensor] = []
                collect_tensors(node.args, constants, node.kwargs)
                node.constants = tuple([(x, version_of(x)) for x in constants])
            self.nodes.append(node)
            if same and self._is_made_again(node.name) and _repeatable(node):  # not in place
                self._release(node)
        elif not depends:
            # A constant with a graph is remembered, so that `_check` knows that it was made under this mode.
            for out in outputs:
                if out.grad_fn is not None or self.value_of(out) is not None:
                    self._remember(out, depends=False)

    def _check_outputs(self, node: Node, outputs: list[Tensor]) -> None:
        """Notice results that are no numbers in a strided memory, or have no gradient though their input has one."""
        for out in outputs:
            if out.is_nested or out.layout is not torch.strided:
                kind = "nested" if out.is_nested else "sparse"
                raise self._unsupported(node.name, f"makes a {kind} tensor, which cannot be recorded")
            grad_fn = out.grad_fn
            cut = grad_fn is None and node.name not in DETACHING and any(v.has_graph for v in node.inputs)
            if (
                cut
                or "NotImplemented" in type(grad_fn).__name__
                or not (is_of_torch(node.function) or _goes_back(node, out))
            ):
                raise self._unsupported(node.name, "has no gradient (a kernel for inference, or quantised?)")

    def _is_made_again(self, name: str) -> bool:
        """Whether results are made again where a rule reads them, unless the graph holds them."""
        if not self.differentiable:
            return name in REPEATABLE
        # Without rules, hardly anything but the graph reads them.
        return self.kernels is not None and self.kernels.twice and (name in REPEATABLE or name in DENSE)

    def _release_scores(self, attention: list[Node]) -> None:
        """Attention scores are as large as the probabilities, and rules seldom need them."""
        softmax = next((i for i, node in enumerate(attention) if node.name == "softmax"), 0)
        for node in attention[:softmax]:
            self._release(node)

    def _release(self, node: Node) -> None:
        """Hold the output no longer than the model does."""
        (value,) = node.outputs
        held = value.held
        # Made once more, it would have another precision outside of autocast; a view is no memory of its own.
        if held is not None and held._base is None and not torch.is_autocast_enabled(held.device.type):
            value.release(node)

    def _remember(self, tensor: Tensor, depends: bool) -> Value:
        value = Value(tensor, depends)
        # `torch.no_grad` of the model's own is noted only: what runs without a graph is inside of an autograd function.
        value.hidden = not torch.is_grad_enabled()
        grad_fn = tensor.grad_fn
        self._entries[id(tensor)] = (value, ref(tensor), grad_fn)
        if depends and grad_fn is not None:
            self._places.add(grad_fn)
        storage = tensor.untyped_storage()._cdata
        self._aliases.setdefault(storage, []).append(value)
        if storage in self._memories:
            self._memories[storage].note(tensor)
        return value

    def _values(self, tensors: Iterable[Tensor]) -> dict[int, Value]:
        """The values among some tensors that depend on the input, by the ids of the tensors."""
        values: dict[int, Value] = {}
        for tensor in tensors:
            entry = self._entries.get(id(tensor))
            if entry is not None and entry[0].depends and entry[1]() is tensor:
                values[id(tensor)] = entry[0]
        return values

    def _from_root(self, looked_up: Tensor, lookup: Lookup) -> Tensor:
        """What a lookup gives, made of the explained embeddings: relevance of all their copies meets there."""
        if looked_up.grad_fn is not None:
            self._remember(looked_up, depends=False)
        if self.root is None:
            tables, ids = self.text.tables, self.text.ids
            embedded = self.watch(embedded_in(tables, ids) if tables and ids is not None else lookup.taken(looked_up))
            if lookup.order is Order.SAME and not tables:
                return embedded
        else:
            embedded = self.root.tensor
            if self.value_of(embedded) is not self.root:  # the model has overwritten what it was given
                self._entries[id(embedded)] = (self.root, ref(embedded), embedded.grad_fn)
        with torch.enable_grad(), self:
            if lookup.order is Order.SAME:
                return lookup.given(embedded, looked_up).clone()
            return lookup.given(embedded, looked_up)

    def _check(self, tensor: Tensor, name: str) -> None:
        """Notice what happened outside of the tape."""
        memory = self._memory_of(tensor)
        if memory is not None and not memory.is_current(tensor):
            raise self._unsupported(
                name,
                "reads a tensor that was changed in place through another view of its memory (view it anew, or "
                "write into a copy of it, by `.clone()`)",
            )
        if tensor.grad_fn is None:
            return
        entry = self._entries.get(id(tensor))
        entry = entry if entry is not None and entry[1]() is tensor else None
        if (entry is None or entry[2] is not tensor.grad_fn) and self._places.lead_to_input(tensor.grad_fn, self.leaf):
            if entry is not None and entry[0].hidden and self._returns(tensor, entry[0]):
                return
            maker = type(tensor.grad_fn).__name__
            why = "made a tensor outside of torch's functions (by a custom autograd function or a fused kernel?)"
            if maker == _CHECKPOINT:
                why = "is a reentrant checkpoint, whose operations have no graph (use_reentrant=False has one)"
            raise self._unsupported(maker, why)

    def _returns(self, tensor: Tensor, value: Value) -> bool:
        """Whether a custom autograd function returned a tensor as the recorded operations have made it.

        Its own backward pass counts for gradients; for relevance, what it has computed.
        """
        function = tensor.grad_fn
        if not isinstance(function, BackwardCFunction) or type(function).__name__ == _CHECKPOINT:
            return False
        # Made of constants alone, as a copy of x is that was filled with ones: no operation leads to it from the input.
        if not value.depends:
            return False
        # A kernel may have written into memory that torch has allotted: then the operations give something else.
        if not _repeats(self.nodes, value, tensor):
            return False
        self._has_functions = True
        value.come_out(tensor)
        self._entries[id(tensor)] = (value, ref(tensor), function)
        self._places.add(function)
        return True

    def _save_before_overwriting(self, tensor: Tensor, node: Node, tensors: list[Tensor]) -> Value | Tensor | None:
        """Save what the values of a memory hold before a call writes into it."""
        if not torch.is_grad_enabled() and self._is_view_from_outside(tensor):
            # The write has a graph here, and the function gives its own to the whole: gradients would count both.
            raise self._unsupported(node.name, "writes, inside of a custom autograd function, into a view it was given")
        if any(x is not tensor and self._depends(x) and shares_memory(x, (tensor,)) for x in tensors[1:]):
            raise self._unsupported(node.name, "reads memory that it writes into (read a copy of it, by `.clone()`)")
        storage = tensor.untyped_storage()._cdata
        if self.kernels is not None and storage in self.kernels.kept:
            # The kernel's gradient would read what is written: attention that is written out may keep less.
            raise KernelError
        if node.inputs:
            _keep_overwritten_constants(node, tensor)
        # A view takes part in the graph of what was written through another one as soon as it is asked for its place.
        _ = tensor.grad_fn
        values = [value for value in self._aliases.get(storage, ()) if _lies_in(value, storage)]
        # A constant into which constants are written stays one: a part of a bias that is set to 0, say.
        if not node.inputs and not any(value.depends for value in values):
            return None
        self._memories.setdefault(storage, SharedMemory(tensor))
        before = self._contents_of_whole(tensor)
        for value in values:
            # A custom autograd function has a gradient of its own, which may need them as they are afterwards.
            if not value.hidden and self._are_probabilities(value):
                raise self._unsupported(node.name, "overwrites attention probabilities in place")
            held = value.held
            assert held is not None
            with torch.enable_grad():
                value.replace(held.clone())
        return before

    def _contents_of_whole(self, tensor: Tensor) -> Value | Tensor | None:
        """What the tensor of which another one is a view holds, if the tape knows it."""
        base = tensor._base
        if base is None or base.dtype != tensor.dtype or tensor.is_conj():
            return None
        memory = self._memories[tensor.untyped_storage()._cdata]
        value = self.value_of(base)
        if memory.is_written and not memory.is_current(base):
            return None
        if value is not None and value.depends:
            return value
        if base.grad_fn is not None and value is None and self._places.lead_to_input(base.grad_fn, self.leaf):
            return None
        with torch.enable_grad():
            return base.clone()

    def _are_probabilities(self, value: Value) -> bool:
        """Whether a softmax has made them, which a model must not overwrite: methods return them."""
        return any(node.name == "softmax" and value in node.outputs for node in self.nodes)

    def _is_view_from_outside(self, tensor: Tensor) -> bool:
        """Whether a tensor is a view of an activation that was there before a custom autograd function began."""
        if tensor._base is None:
            return False
        values = (self.value_of(tensor), self.value_of(tensor._base))
        return any(value is not None and value.depends and not value.hidden for value in values)

    # -- Memory that several tensors share -----------------------------------------------------------------------------

    def _memory_of(self, tensor: Tensor) -> SharedMemory | None:
        """The memory that a tensor shows, if it was written into."""
        if not self._memories or tensor.layout is not torch.strided or tensor.is_nested:
            return None
        return self._memories.get(tensor.untyped_storage()._cdata)

    def _note_write(self, tensor: Tensor, before: Value | Tensor | None) -> None:
        """Note what a tensor that was written through, and the one that it is a view of, hold since."""
        memory = self._memory_of(tensor)
        if memory is None:
            return
        memory.note_write(tensor)
        base = tensor._base
        if before is None or base is None:
            return
        value = self.value_of(tensor)
        args = (before, places(base, tensor), value if value is not None and value.depends else tensor.clone())
        inputs = tuple(x for x in args if isinstance(x, Value))
        output = self._remember(base, depends=bool(inputs))
        if inputs:
            constants = tuple((x, version_of(x)) for x in args if isinstance(x, Tensor))
            self.nodes.append(Node("write_through", put, args, {}, inputs, (output,), self._where(), constants))

    def _check_versions(self, tensors: list[Tensor], versions: list[int], node: Node, written: Any) -> None:
        for tensor, version in zip(tensors, versions, strict=True):
            if version_of(tensor) != version and tensor is not written and self.value_of(tensor) is not None:
                raise self._unsupported(node.name, "changes its argument in place, unannounced")

    def _where(self) -> str:
        return self._running.name() if self._running is not None else ""

    def _unsupported(self, name: str, why: str) -> UnsupportedOperationError:
        return UnsupportedOperationError(
            f"{name} in module '{self._where() or '(model)'}' {why}; the recording has a gap there, for every method. "
            "Way out: a version of the module in plain torch operations, not in place."
        )


def _read(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Iterable[Tensor]:
    """The tensors of which a call reads numbers."""
    if name in OF_FIRST:
        return tensors_in((args[:1], kwargs))
    return tensors[1:] if name in OVERWRITING else tensors


def _with_values(args: tuple[Any, ...], values: Mapping[int, Value]) -> tuple[Any, ...]:
    """The arguments of a call with values in the places of their tensors."""
    found: list[Any] = []
    for x in args:
        if isinstance(x, Tensor):
            found.append(values.get(id(x), x))
        elif isinstance(x, (tuple, list, dict)):
            found.append(map_nested(x, Tensor, lambda each: values.get(id(each), each)))
        else:
            found.append(x)
    return tuple(found)


def _lies_in(value: Value, storage: int) -> bool:
    """Whether a value is held, and in this memory: no copy of an earlier write."""
    held = value.held
    return held is not None and held.untyped_storage()._cdata == storage


def _overwriting(node: Node, target: Tensor) -> Node:
    """`target.copy_(source)` as what it makes; the target's own numbers are not read."""
    source = next(iter((*node.args[1:], *node.kwargs.values())), 0.0)
    inputs = (source,) if isinstance(source, Value) else ()
    return Node(node.name, copied, (source, target.shape, target.dtype), {}, inputs, path=node.path)


def _repeats(nodes: Sequence[Node], value: Value, tensor: Tensor) -> bool:
    """Whether the operations inside of a custom autograd function, done once more, make the tensor."""
    # From the last operation back to where the function began: what it was given is not hidden, and not made anew.
    inside: list[Node] = []
    needed = {value}
    for node in reversed(nodes):
        if not needed:
            break
        if needed.intersection(node.outputs):
            inside.append(node)
            needed.difference_update(node.outputs)
            needed.update(x for x in node.inputs if x.hidden)
    values: dict[Value, Tensor] = {}
    with torch.no_grad():
        for node in reversed(inside):
            # Calls that write in place write into copies, so that neither tape nor model is changed.
            result = node.call(lambda x: values.get(x, x.tensor))
            values.update(zip(node.outputs, numbers_in(result), strict=True))
    recomputed = values[value]
    # The same operations on the same processor: where sums come in another order, an entry's last digit may differ.
    rounding = 2 * torch.finfo(tensor.dtype).eps
    return recomputed.shape == tensor.shape and torch.allclose(
        recomputed, tensor.detach(), rounding, 0.0, equal_nan=True
    )


def _taking(node: Node, tensor: Tensor, result_of: Callable[[], Tensor]) -> Node:
    """`as_strided`, which goes by places in memory, as what it reads of the tensor; as it is if it reads beside it."""
    at = places(tensor, result_of().detach())
    if bool((at < 0).any()):
        return node
    return Node("take", torch.take, (node.inputs[0], at), {}, node.inputs, path=node.path)


def _casts_a_constant(node: Node) -> bool:
    """Whether the call brings a constant to the type or the shape of a value, on which no number of it depends."""
    return node.name in AS_ANOTHER and isinstance(node.argument(0, "input"), Tensor)


def _goes_back(node: Node, out: Tensor) -> bool:
    """Whether the output of an operation that is not torch's own has a gradient: only trying tells."""
    edges = [value.edge for value in node.inputs if value.edge is not None]
    if not out.requires_grad or not edges:
        return True
    try:
        torch.autograd.grad(out, edges, torch.zeros_like(out), retain_graph=True, allow_unused=True)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _keep_overwritten_constants(node: Node, written: Tensor) -> None:
    """Give the node copies of the constants that its call is about to write into.

    `result.index_add_(0, rows, x)` reads zeros before it makes them an activation; the rule reads the zeros, too.
    """
    with torch.enable_grad():
        node.args, node.kwargs = map_nested(
            (node.args, node.kwargs), Tensor, lambda t: t.clone() if shares_memory(t, (written,)) else t
        )


def _stands_there(target: Tensor, index: Any, written: Any) -> bool:
    """Whether an assignment writes a view of the target where it is: the end of `x[index] += y`, which has added."""
    if not isinstance(written, Tensor) or not shares_memory(written, (target,)):
        return False
    place = _part(target, index)
    return (place.data_ptr(), place.shape, place.stride()) == (written.data_ptr(), written.shape, written.stride())


def _part(target: Tensor, index: Any) -> Tensor:
    """The part of a tensor that an assignment writes into; for a list of places or a mask, the tensor."""
    with torch.no_grad():
        part = target[index]
    return part if shares_memory(part, (target,)) else target


def _repeat_the_choice(node: Node, result: Any) -> None:
    """Let a node that chose entries by their size pick the same ones whenever it is repeated, as `gather` does.

    Chosen once more, in another precision or of other numbers, equal entries could come in another order.
    """
    _, indices = result
    axis = node.argument(*CHOOSING[node.name], -1)
    node.function = torch.gather
    node.args = (node.argument(0, "input"), axis, indices)
    node.kwargs = {}


def _repeatable(node: Node) -> bool:
    """Whether the call's constants are the model's own weights: others may be overwritten before it is repeated."""
    return all(isinstance(x, nn.Parameter) for x in tensors_in((node.args, node.kwargs)))
