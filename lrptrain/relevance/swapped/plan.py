"""What of a model's calls has another gradient than autograd's, by the number of the call: a plan for later passes.

A tape makes it once. A later pass is an ordinary one that counts the calls, checks that they are those of the plan, and
swaps what it says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from lrptrain.relevance.passes.plain_pass import NeedsTape, is_looked_at
from lrptrain.relevance.propagation.operation_rules import is_inverse
from lrptrain.relevance.swapped.swaps import Swap, attention, halved, held, layer_norm, of_values, rms_norm, slope
from lrptrain.relevance.tape.explicit import EXPLICIT
from lrptrain.relevance.tape.functions import (
    ALONG,
    AVERAGES,
    CAST,
    DECOMPOSED,
    DENSE,
    ELEMENTWISE,
    ENTRIES,
    FUNCTIONS,
    HASHING,
    MAXIMA,
    MIXTURES,
    NORMALISATIONS,
    PRODUCTS,
    PUTS,
    QUESTIONS,
    RESHAPES,
    SUMS,
    TRANSPOSITIONS,
    WEIGHTED,
    WRITTEN,
    canonical_name,
    is_in_place,
)
from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tape.regions import Region
from lrptrain.relevance.tape.tape import Tape

if TYPE_CHECKING:
    from lrptrain.relevance.passes.recording import Recording

NATIVE = (
    CAST
    | ENTRIES
    | DENSE
    | SUMS
    | AVERAGES
    | MAXIMA
    | MIXTURES
    | ALONG
    | WRITTEN
    | PUTS
    | {"mean", "sum", "masked_fill", "where", "nan_to_num", "softmax", "log_softmax", "linear_map", "identity"}
    | {"relu", "leaky_relu", "prelu", "neg", "abs", "dropout", "dropout1d", "dropout2d", "dropout3d"}
    | {"batch_norm", "hardshrink"}
)
"""Operations whose rule is their gradient."""
FUSED = "scaled_dot_product_attention"
INDEXING = frozenset({"getitem", "index_select", "take_along_dim", "gather", "take"})
"""Operations that may take samples in another order, by tensors of indices."""
READING_NUMBERS = (
    (SUMS | AVERAGES | MAXIMA | ALONG | TRANSPOSITIONS | INDEXING)
    | {"pow", "softmax", "log_softmax", "mean", "sum", "einsum", "layer_norm", "rms_norm", "group_norm"}
    | {"roll", "flip", "fliplr", "flipud", "rot90", FUSED}
)
"""Operations that have a rule for some exponents or axes only: others are for the tape to judge."""
NOTED = READING_NUMBERS | (ENTRIES - RESHAPES - {"expand", "expand_as", "broadcast_to", "repeat"})
"""And those whose settings say where entries go, of which the sizes say nothing."""
Operands = tuple[int, ...]
"""Of each tensor that a call is given, the number of the call that made it; INPUT, or CONSTANT."""
INPUT, CONSTANT = -1, -2
OUTPUTS = 20
"""A call of several outputs has the number of the call and, from this bit on, that of the output."""


class Mismatch(NeedsTape):
    """A pass is not the one that a plan was made of, or none can be made of it: the tape serves."""


@lru_cache(FUNCTIONS)
def is_counted(func: Callable[..., Any]) -> bool:
    """Return whether a call has a number: questions for shapes and flags have none."""
    name = canonical_name(func)
    is_question = name in QUESTIONS or name in ("requires_grad", "set_grad_enabled")
    return not is_question and getattr(func, "__name__", "") != "__set__"


@lru_cache(FUNCTIONS)
def is_decomposed(func: Callable[..., Any]) -> bool:
    """Return whether a call is written out in others, which are counted in its place."""
    return canonical_name(func) in DECOMPOSED


def operands_of(args: Sequence[Any], kwargs: dict[str, Any] | None) -> list[Tensor]:
    """The tensors among the arguments of a call, and in their lists, in order."""
    found: list[Tensor] = []
    for x in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (tuple, list)):
            found += [each for each in x if isinstance(each, Tensor)]
    return found


def constants_of(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None,
    depends: Callable[[Tensor], bool] | None,
) -> str:
    """What is no tensor among the arguments of a call; if places matter, how large constants are, which do not depend.

    Where they do not, of indices only those of the first axis, and whether tensors of indices are in order.
    """
    given = [*args, *((name, kwargs[name]) for name in sorted(kwargs))] if kwargs else args
    is_index = depends is None and canonical_name(func) in INDEXING
    found = [_constant_of(x, depends, is_index) for x in given]
    if is_index and len(args) > 1:
        first = args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]
        found.append(None if isinstance(first, Tensor) else first)
    return repr(found)


def _constant_of(x: Any, depends: Callable[[Tensor], bool] | None, is_index: bool) -> Any:
    if isinstance(x, Tensor):
        if not x.is_floating_point() and x.ndim == 1:
            return bool((x == torch.arange(len(x), device=x.device)).all())
        return None if depends is None or depends(x) else tuple(x.shape[1:])
    if isinstance(x, (tuple, list)):
        return [_constant_of(each, depends, is_index) for each in x]
    return None if is_index else x


def note_made(made: dict[int, int], result: Any, number: int) -> None:
    """Note which call made a tensor, or several."""
    if isinstance(result, Tensor):
        made[id(result)] = number
    elif isinstance(result, (tuple, list)):
        for place, each in enumerate(result):
            note_made(made, each, number | place << OUTPUTS)


@dataclass(eq=False)
class NotingTape(Tape):
    """A tape that notes which call of the model made each operation.

    Attributes:
        calls: The functions, in the order in which the model called them.
        operands: What each is given.
        numbers: By the id of an operation, the number of the call that it is part of.
        constants: What calls are given that is no tensor, where it matters: without places, and with them.
        written: The calls that write into a tensor that they are given.
        is_private: Whether a call does what no plan can follow: it takes `.data`, or hooks a gradient.
    """

    calls: list[Callable[..., Any]] = field(default_factory=list)
    operands: list[Operands] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    constants: dict[int, tuple[str, str]] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    is_private: bool = False
    _made: dict[int, int] = field(default_factory=dict, init=False)
    _is_inside: bool = field(default=False, init=False)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry out one call of the model, record it, and note its number."""
        if self._running is None or self._is_inside or not is_counted(func):
            return super().__torch_function__(func, types, args, kwargs)
        number, start = len(self.calls), len(self.nodes)
        self.calls.append(func)
        tensors = operands_of(args, kwargs)
        made = [self._made.get(id(x), INPUT) if self._depends(x) else CONSTANT for x in tensors]
        self.operands.append(tuple(made))
        name = canonical_name(func)
        if name in NOTED:
            with_places = constants_of(func, args, kwargs, self._depends)
            self.constants[number] = constants_of(func, args, kwargs, None), with_places
        if is_in_place(func, args, kwargs or {}):
            self.written.add(number)
        self.is_private |= name in ("data", "register_hook") and max(made, default=CONSTANT) != CONSTANT
        # What is written out call by call is counted call by call.
        self._is_inside = not is_decomposed(func)
        try:
            result = super().__torch_function__(func, types, args, kwargs)
            note_made(self._made, result, number)
            return result
        finally:
            self._is_inside = False
            for node in self.nodes[start:]:
                self.numbers.setdefault(id(node), number)


@dataclass(eq=False)
class Plan:
    """The calls of a model, which a later pass must make again, and which of them it has something to do at.

    Attributes:
        calls: The functions that the model calls.
        operands: What each is given; None where nothing is asked, as of what the answer does not come from.
        constants: What calls are given that is no tensor, of the operations of `read`.
        written: The calls that write into a tensor that they are given.
        direct: Calls that are carried out as they are.
        kept: Calls that a map is made of.
    """

    calls: list[Callable[..., Any]]
    operands: list[Operands | None]
    constants: dict[int, str]
    written: set[int]
    direct: frozenset[int] = field(default=frozenset(), init=False)
    kept: frozenset[int] = field(default=frozenset(), init=False)
    read: ClassVar[frozenset[str]] = READING_NUMBERS
    reads_places: ClassVar[bool] = False

    @classmethod
    def of(cls, recording: "Recording", count: int) -> Self:
        """The plan of a pass on a tape that notes.

        Args:
            recording: The pass.
            count: The number of calls that the model made; what reads its output made others.

        Raises:
            Mismatch: If there is none, as of a model with an operation that has no gradient form.
        """
        passed = recording.forward_pass
        assert passed is not None
        tape = passed.tape
        assert isinstance(tape, NotingTape)
        if tape._has_functions or tape.tables or tape.is_private:
            raise Mismatch("a custom autograd function, several tables of words, a hook, or `.data`")
        used = {tape.numbers[id(node)] for node in passed.made_by() if id(node) in tape.numbers}
        operands = [given if i in used else None for i, given in enumerate(tape.operands[:count])]
        read = {i for i in used & tape.constants.keys() if canonical_name(tape.calls[i]) in cls.read}
        constants = {i: tape.constants[i][cls.reads_places] for i in read}
        plan = cls(tape.calls[:count], operands, constants, tape.written)
        special = plan._special(recording, tape.numbers)
        if any(number >= count for number in special | plan.kept):
            raise Mismatch("what reads the output is one of the calls that there is something to do at")
        plan.direct = frozenset(i for i, func in enumerate(plan.calls) if i not in special and _is_direct(func))
        return plan

    def _special(self, recording: "Recording", numbers: dict[int, int]) -> set[int]:
        """Find and return the calls that there is something to do at, by the calls that operations belong to."""
        raise NotImplementedError


@dataclass(eq=False)
class SwapPlan(Plan):
    """What differs from the gradient, by the number of the call.

    Attributes:
        swaps: Calls with another gradient.
        cut: The places of operands that are held fixed.
        sources: Calls that begin one: its number, and the place of what it is a function of.
        ends: Calls whose result is that of one, by its number.
        place: The call that makes what relevance is asked for; None for the input itself.
    """

    swaps: dict[int, Swap] = field(default_factory=dict, init=False)
    cut: dict[int, frozenset[int]] = field(default_factory=dict, init=False)
    sources: dict[int, tuple[int, int]] = field(default_factory=dict, init=False)
    ends: dict[int, int] = field(default_factory=dict, init=False)
    place: int | None = field(default=None, init=False)

    def _special(self, recording: "Recording", numbers: dict[int, int]) -> set[int]:
        for node in recording.tape.nodes:
            self._add(node, numbers, recording)
        if recording.encoder_input is not recording.propagator.root:
            self.place = maker(recording, recording.encoder_input, numbers)
            self.kept = frozenset({self.place})
        return {*self.swaps, *self.cut, *self.ends, *self.kept}

    def _add(self, node: Node, numbers: dict[int, int], recording: "Recording") -> None:
        if isinstance(node.function, Region):
            self._add_region(node, numbers)
            return
        number = numbers.get(id(node))
        if number is None:
            if node.name not in NATIVE:
                raise Mismatch(f"{node.name}, which a canonizer makes")
            return
        called = canonical_name(self.calls[number]) if number < len(self.calls) else node.name
        if called == FUSED:
            self.swaps[number] = attention
        elif called in EXPLICIT and called not in NATIVE | PRODUCTS | {node.name}:
            raise Mismatch(f"{called} in parts")
        elif (node.name in PRODUCTS and len(node.inputs) == 2) or _is_square(node):
            self._swap(number, halved)
        elif node.name == "mul":
            self._add_product(node, number, recording)
        elif node.name == "div":
            if isinstance(node.argument(1, "other"), Value):
                self.cut[number] = frozenset({1})
        elif node.name in ("layer_norm", "rms_norm"):
            self.swaps[number] = layer_norm if node.name == "layer_norm" else rms_norm
        elif node.name in NATIVE or node.name in PRODUCTS:
            pass
        elif node.name in ELEMENTWISE and node.name not in ("detach", "data", *NORMALISATIONS):
            self._swap(number, slope)
        else:
            raise Mismatch(f"no gradient form of {node.name}")

    def _add_product(self, node: Node, number: int, recording: "Recording") -> None:
        """A product of two: halved, or the denominator of a norm that is written out, which is held fixed."""
        if len(node.inputs) != 2:
            return
        inverse = [is_inverse(recording.propagator, x) for x in node.args[:2]]
        if len(inverse) < 2:
            raise Mismatch("factors that are given by name")
        if inverse[0] != inverse[1]:
            self.cut[number] = frozenset({inverse.index(True)})
        else:
            self._swap(number, halved)

    def _swap(self, number: int, swap: Swap) -> None:
        if number in self.written:  # what is swapped makes a tensor of its own, and others may see the one written into
            raise Mismatch("a product or an activation in place")
        self.swaps[number] = swap

    def _add_region(self, node: Node, numbers: dict[int, int]) -> None:
        """What several calls are together: a softmax, a norm, or an activation."""
        region: Any = node.function
        if node.name == "softmax":
            return  # the gradient of its parts is that of a softmax
        factor = getattr(region, "factor", None)
        if factor is not None:
            for member in region.nodes:
                places = frozenset(i for i, x in enumerate(member.args) if x is factor)
                if places and member in region.linear:
                    self.cut[_number(member, numbers)] = places
            return
        inside = {_number(member, numbers) for member in region.nodes}
        for number in inside & set(range(len(self.operands))):
            given = self.operands[number]
            if given is not None:  # what is made inside is constant: the source is cut from the graph
                own = [each >= 0 and each & ((1 << OUTPUTS) - 1) in inside for each in given]
                self.operands[number] = tuple([CONSTANT if x else each for x, each in zip(own, given, strict=True)])
        for member in region.nodes:
            places = frozenset(i for i, x in enumerate(member.args) if x is region.source)
            if places:
                number = _number(member, numbers)
                self.cut[number] = places
                self.sources[number] = (id(node), min(places))
        self.ends[_number(region.nodes[-1], numbers)] = id(node)


@dataclass(eq=False)
class ConservativePlan(SwapPlan):
    """The same for CP-LRP: what softmaxes make is held fixed."""

    def _add(self, node: Node, numbers: dict[int, int], recording: "Recording") -> None:
        number = numbers.get(id(node))
        made = recording.propagator.from_softmaxes
        if isinstance(node.function, Region) and node.name == "softmax":
            raise Mismatch("a softmax in parts")
        if number is not None and number < len(self.calls) and canonical_name(self.calls[number]) == FUSED:
            self.swaps[number] = of_values
        elif node.name == "softmax":
            self.swaps[_number(node, numbers)] = held
        elif node.name not in PRODUCTS | {"mul"} or len([x for x in node.inputs if x not in made]) != 1:
            super()._add(node, numbers, recording)


def _is_direct(func: Callable[..., Any]) -> bool:
    """Return whether a plain pass has nothing to do at a call: weights are constant there."""
    name = canonical_name(func)
    return name in WEIGHTED or not (is_looked_at(func) or name in HASHING or is_decomposed(func))


def maker(recording: "Recording", value: Value, numbers: dict[int, int]) -> int:
    """The number of the call that has made a value."""
    return _number(next(node for node in recording.tape.nodes if value in node.outputs), numbers)


def _number(node: Node, numbers: dict[int, int]) -> int:
    if id(node) not in numbers:
        raise Mismatch(f"{node.name}, which a canonizer makes")
    return numbers[id(node)]


def _is_square(node: Node) -> bool:
    return node.name == "mul" and len(node.args) == 2 and node.args[0] is node.args[1]
