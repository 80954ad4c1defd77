"""What of a model's calls has another gradient than autograd's: a plan for later passes.

A tape makes it once. A later pass is an ordinary one that counts the calls, checks that they are those of the plan, and
swaps what it says.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lrptrain.relevance.passes.plain_pass import NeedsTape
from lrptrain.relevance.propagation.operation_rules import is_inverse
from lrptrain.relevance.swapped.calls import CONSTANT, FUSED, OUTPUTS, READING_NUMBERS, Call, NotingTape
from lrptrain.relevance.swapped.swaps import Swap, attention, halved, held, layer_norm, of_values, rms_norm, slope
from lrptrain.relevance.tape.explicit import EXPLICIT
from lrptrain.relevance.tape.functions import (
    ALONG,
    AVERAGES,
    CAST,
    DENSE,
    ELEMENTWISE,
    ENTRIES,
    MAXIMA,
    MIXTURES,
    NORMALISATIONS,
    PRODUCTS,
    PUTS,
    SUMS,
    WRITTEN,
    canonical_name,
)
from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tape.regions import Region

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


class Mismatch(NeedsTape):
    """A pass is not the one that a plan was made of, or none can be made of it: the tape serves."""


@dataclass(eq=False)
class Plan:
    """The calls of a model, which a later pass must make again, and which of them it has something to do at.

    Attributes:
        calls: The calls, in order.
    """

    calls: list[Call]
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
        plan = cls(tape.calls)
        judged = cls._judged(tape)
        for number, call in enumerate(plan.calls):
            call.operands = call.operands if number in used else None
            settings = call.with_places if cls.reads_places else call.settings
            is_read = number in judged or canonical_name(call.function) in cls.read
            call.settings = settings if number in used and is_read else None
        plan._add_all(recording, tape.numbers)
        plan.calls, behind = plan.calls[:count], plan.calls[count:]
        if any(call.is_special for call in behind):
            raise Mismatch("what reads the output is one of the calls that there is something to do at")
        for call in plan.calls:
            call.is_direct = call.may_be_direct
        return plan

    @classmethod
    def _judged(cls, tape: NotingTape) -> set[int]:
        """The calls whose settings decide which rule there is."""
        return set()

    def _add_all(self, recording: "Recording", numbers: dict[int, int]) -> None:
        """Note what is to be done at the calls that operations belong to, whose numbers are given by their ids."""
        raise NotImplementedError

    def _call(self, node: Node, numbers: dict[int, int]) -> Call:
        return self.calls[_number(node, numbers)]


@dataclass(eq=False)
class SwapPlan(Plan):
    """Says which calls have another gradient.

    Attributes:
        place: The call that makes what relevance is asked for; None for the input itself.
    """

    place: int | None = field(default=None, init=False)

    @classmethod
    def _judged(cls, tape: NotingTape) -> set[int]:
        # A tensor could say something else the next time, as a gate that was closed does; a number shows in the call.
        if any(node.constants for node in tape.judged):
            raise Mismatch("numbers in tensors decide what several calls are together")
        return {tape.numbers[id(node)] for node in tape.judged if id(node) in tape.numbers}

    def _add_all(self, recording: "Recording", numbers: dict[int, int]) -> None:
        for node in recording.tape.nodes:
            self._add(node, numbers, recording)
        if recording.encoder_input is not recording.propagator.root:
            self.place = maker(recording, recording.encoder_input, numbers)
            self.calls[self.place].is_kept = True

    def _add(self, node: Node, numbers: dict[int, int], recording: "Recording") -> None:
        if isinstance(node.function, Region):
            self._add_region(node, numbers)
            return
        if id(node) not in numbers:
            if node.name not in NATIVE:
                raise Mismatch(f"{node.name}, which a canonizer makes")
            return
        call = self._call(node, numbers)
        called = canonical_name(call.function)
        if called == FUSED:
            call.swap = attention
        elif called in EXPLICIT and called not in NATIVE | PRODUCTS | {node.name}:
            raise Mismatch(f"{called} in parts")
        elif (node.name in PRODUCTS and len(node.inputs) == 2) or _is_square(node):
            _swap(call, halved)
        elif node.name == "mul":
            _add_product(node, call, recording)
        elif node.name == "div":
            if isinstance(node.argument(1, "other"), Value):
                call.cut = frozenset({1})
        elif node.name in ("layer_norm", "rms_norm"):
            call.swap = layer_norm if node.name == "layer_norm" else rms_norm
        elif node.name in NATIVE or node.name in PRODUCTS:
            pass
        elif node.name in ELEMENTWISE and node.name not in ("detach", "data", *NORMALISATIONS):
            _swap(call, slope)
        else:
            raise Mismatch(f"no gradient form of {node.name}")

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
                    self._call(member, numbers).cut = places
            return
        inside = {_number(member, numbers) for member in region.nodes}
        for number in inside:
            call = self.calls[number]
            if call.operands is not None:  # what is made inside is constant: the source is cut from the graph
                own = [each >= 0 and each & ((1 << OUTPUTS) - 1) in inside for each in call.operands]
                call.operands = tuple([CONSTANT if x else each for x, each in zip(own, call.operands, strict=True)])
        for member in region.nodes:
            places = frozenset(i for i, x in enumerate(member.args) if x is region.source)
            if places:
                call = self._call(member, numbers)
                call.cut, call.source = places, (id(node), min(places))
        self._call(region.nodes[-1], numbers).end = id(node)


@dataclass(eq=False)
class ConservativePlan(SwapPlan):
    """The same for CP-LRP: what softmaxes make is held fixed."""

    def _add(self, node: Node, numbers: dict[int, int], recording: "Recording") -> None:
        made = recording.propagator.from_softmaxes
        if isinstance(node.function, Region) and node.name == "softmax":
            raise Mismatch("a softmax in parts")
        if id(node) in numbers and canonical_name(self._call(node, numbers).function) == FUSED:
            self._call(node, numbers).swap = of_values
        elif node.name == "softmax":
            self._call(node, numbers).swap = held
        elif node.name not in PRODUCTS | {"mul"} or len([x for x in node.inputs if x not in made]) != 1:
            super()._add(node, numbers, recording)


def _add_product(node: Node, call: Call, recording: "Recording") -> None:
    """A product of two: halved, or the denominator of a norm that is written out, which is held fixed."""
    if len(node.inputs) != 2:
        return
    inverse = [is_inverse(recording.propagator, x) for x in node.args[:2]]
    if len(inverse) < 2:
        raise Mismatch("factors that are given by name")
    if inverse[0] != inverse[1]:
        call.cut = frozenset({inverse.index(True)})
    else:
        _swap(call, halved)


def _swap(call: Call, swap: Swap) -> None:
    if call.writes:  # what is swapped makes a tensor of its own, and others may see the one written into
        raise Mismatch("a product or an activation in place")
    call.swap = swap


def maker(recording: "Recording", value: Value, numbers: dict[int, int]) -> int:
    """The number of the call that has made a value."""
    return _number(next(node for node in recording.tape.nodes if value in node.outputs), numbers)


def _number(node: Node, numbers: dict[int, int]) -> int:
    if id(node) not in numbers:
        raise Mismatch(f"{node.name}, which a canonizer makes")
    return numbers[id(node)]


def _is_square(node: Node) -> bool:
    return node.name == "mul" and len(node.args) == 2 and node.args[0] is node.args[1]
