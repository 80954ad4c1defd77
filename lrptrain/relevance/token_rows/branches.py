"""How a model's sums join states with what is made of them: what goes by attention, and what goes around it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import or_

from lrptrain.relevance.tape.functions import SUMS
from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tokens.attentions import Attention
from lrptrain.relevance.types import UnsupportedMethodError


@dataclass(frozen=True)
class Operand:
    """A term of a sum, and how the row goes on to it.

    Attributes:
        value: The term.
        share: Which part of the row it gets, 0 to 1.
        on_top: Whether it is attention beside states that go around it: it then gets the whole row besides.
    """

    value: Value
    share: float
    on_top: bool = False


@dataclass(frozen=True)
class _Ways:
    """What can be reached from a value, against the direction of the tape; sets are the bits of a number.

    Attributes:
        free: The forks that are reached without passing through attention.
        reached: The forks that are reached at all.
        nearest: The attention that is passed first.
        passed: The attention that is passed at all.
        maps: How many terms of attention that counts are in the value, if it is a sum, since the last fork.
        states: How many of its terms are states.
        residuals: How many of its sums join states with attention: so often the identity counts beside the maps.
    """

    free: int = 0
    reached: int = 0
    nearest: int = 0
    passed: int = 0
    maps: int = 0
    states: int = 1
    residuals: int = 0

    def with_fork(self, bit: int) -> "_Ways":
        """These ways, from a value that is a fork itself."""
        return replace(self, free=self.free | bit, reached=self.reached | bit)


class Branches:
    """The sums of a model, with the share of each term.

    A fork is a value that several operations read, such as the states before a block. At a sum `u + v`, a term that
    comes freely, without passing through attention, from a fork that the other one also comes from, is the state that
    goes around the other; a term that comes from there through attention only is a branch of attention.

    Args:
        nodes: The operations between the input and the logits along which rows go, first to last.
        root: The input.
        attentions: All attention on the way, first to last.
        used: Numbers of those whose maps are multiplied; the others count as nothing beside the states.
        summed: Whether the maps are added to the states (R <- R + A R), or averaged with them ((R + A R) / 2).
        alone: The number of the one attention of which only its own map is read, not the states around it; or None.
        carriers: Which inputs of an operation a row goes to.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        root: Value,
        attentions: Sequence[Attention],
        used: set[int],
        *,
        summed: bool,
        alone: int | None,
        carriers: Callable[[Node], Sequence[Value]],
    ) -> None:
        self._nodes = nodes
        self._numbers = {attention.product: i for i, attention in enumerate(attentions)}
        self._attentions = attentions
        self._used = sum(1 << i for i in used)
        self._summed = summed
        self._alone = alone
        self._carriers = carriers
        readers = Counter(value for node in nodes for value in self._read(node))
        forks = [root, *(value for value, count in readers.items() if count > 1 and value is not root)]
        self._bits = {value: 1 << i for i, value in enumerate(forks)}
        self._ways: dict[Value, _Ways] = {root: _Ways(self._bits[root], self._bits[root])}
        for node in nodes:
            ways = self._behind(node)
            for value in node.outputs:
                bit = self._bits.get(value)
                at_fork = ways if bit is None else replace(ways.with_fork(bit), maps=0, states=1, residuals=0)
                self._ways[value] = at_fork
        identities = self._identities()
        self._operands = {node: self._split(node, identities[node]) for node in nodes if node.name in SUMS}
        self._scales = self._find_scales() if summed else {}

    def operands(self, node: Node) -> list[Operand]:
        """The terms of a sum that get a part of the row."""
        return self._operands[node]

    def scale(self, node: Node) -> float:
        """What part of the whole row arrives at a sum, by the sums behind it that have shared it out."""
        return self._scales.get(node, 1.0)

    def _read(self, node: Node) -> Sequence[Value]:
        attention = self._attention(node)
        if attention is None:
            return self._carriers(node)
        return [attention.values] if isinstance(attention.values, Value) else []

    def _attention(self, node: Node) -> Attention | None:
        number = self._numbers.get(node)
        return None if number is None else self._attentions[number]

    def _behind(self, node: Node) -> _Ways:
        ways = [self._ways[value] for value in self._read(node) if value in self._ways]
        reached = _union(way.reached for way in ways)
        passed = _union(way.passed for way in ways)
        number = self._numbers.get(node)
        if number is not None:
            return _Ways(0, reached, 1 << number, passed | 1 << number, self._used >> number & 1, 0)
        free = _union(way.free for way in ways)
        nearest = _union(way.nearest for way in ways)
        if node.name in SUMS:
            ways = [self._ways[value] for value in self._terms(node)]
            return _Ways(free, reached, nearest, passed, *_counts(ways))
        single = ways[0] if len(ways) == 1 else _Ways()
        return _Ways(free, reached, nearest, passed, single.maps, single.states, single.residuals)

    # -- Sums ----------------------------------------------------------------------------------------------------------

    def _terms(self, node: Node) -> list[Value]:
        """The terms of a sum that a row goes to."""
        arguments = (node.argument(0, "input"), node.argument(1, "other"))
        values = [value for value in dict.fromkeys(arguments) if isinstance(value, Value)]
        # What attention reads from another input, such as an image, is none of the explained tokens' states.
        values = [value for value in values if value in self._ways]
        if len(values) < 2:
            return values
        if self._alone is not None:
            with_it = [value for value in values if self._ways[value].passed >> self._alone & 1]
            if len(with_it) == 1:
                if not all(value in with_it or self._is_state(value, node) for value in values):
                    raise UnsupportedMethodError(
                        f"{node.name} in module '{node.path or '(model)'}' adds other attention to that of the block, "
                        "so that its map is not all that is read there"
                    )
                return with_it
        # Attention that is not used adds nothing to the states beside it.
        has_state = any(self._is_state(value, node) for value in values)
        return [
            value
            for value in values
            if not has_state or self._is_state(value, node) or self._ways[value].nearest & self._used
        ]

    def _is_state(self, value: Value, node: Node) -> bool:
        """Whether a term comes freely from a fork that another term comes from."""
        others = [other for other in node.inputs if other is not value and other in self._ways]
        reached = _union(self._ways[other].reached for other in others)
        return bool(self._ways[value].free & reached)

    def _split(self, node: Node, identity: float) -> list[Operand]:
        """The terms of a sum with their shares.

        Args:
            node: The sum.
            identity: How much a state counts where a map counts 1, as the sum is part of larger ones.
        """
        terms = self._terms(node)
        if len(terms) < 2:
            return [Operand(value, 1.0) for value in terms]
        ways = [self._ways[value] for value in terms]
        is_state = [self._is_state(value, node) for value in terms]
        if self._summed and any(is_state):
            counts = [float(way.states) if state else 0.0 for way, state in zip(ways, is_state, strict=True)]
        else:
            counts = [way.maps + identity * way.states for way in ways]
        total = sum(counts)
        if total == 0:
            raise UnsupportedMethodError(
                f"{node.name} in module '{node.path or '(model)'}' adds up attention that is not asked for, without "
                "states beside it, so that its block cannot be left out"
            )
        return [
            Operand(value, count / total, on_top=self._summed and any(is_state) and not state)
            for value, count, state in zip(terms, counts, is_state, strict=True)
        ]

    def _identities(self) -> dict[Node, float]:
        """How much a state counts in each sum: the same in all sums that make up a larger one."""
        identities: dict[Node, float] = {}
        # The sum of which a value is a part, through operations of one input that nothing else reads.
        larger: dict[Value, Node] = {}
        for node in reversed(self._nodes):
            (value, *_) = node.outputs
            outermost = larger.get(value)
            if node.name in SUMS:
                outermost = node if outermost is None else outermost
                ways = self._ways[outermost.outputs[0]] if outermost is not node else self._behind(node)
                identities[node] = identities.get(outermost, ways.residuals / max(ways.states, 1) or 1.0)
            read = self._read(node)
            if outermost is not None and (node.name in SUMS or len(read) == 1) and node not in self._numbers:
                larger.update((part, outermost) for part in read if part not in self._bits)
        return identities

    # -- Scales --------------------------------------------------------------------------------------------------------

    def _find_scales(self) -> dict[Node, float]:
        """What part of the whole row arrives at each sum: less than all between a sum that shares it and the fork.

        Raises:
            UnsupportedMethodError: If attention follows attention there: its map would be added to a part of the row.
        """
        arrivals: dict[Value, list[_Open]] = {self._nodes[-1].outputs[0]: [_Open()]}
        scales: dict[Node, float] = {}
        for node in reversed(self._nodes):
            arrived = [_joined(arrivals[value], self._operands) for value in node.outputs if value in arrivals]
            if not arrived:
                continue
            state = _joined(arrived, self._operands)
            if node.name not in SUMS:
                number = self._numbers.get(node)
                for value in self._read(node):
                    arrivals.setdefault(value, []).append(state.behind_attention() if number is not None else state)
                continue
            if state.on_top and all(self._ways[operand.value].states == 0 for operand in self._operands[node]):
                # Two maps beside the same states: each is met by the whole row.
                self._operands[node] = [Operand(operand.value, 1.0) for operand in self._operands[node]]
            operands = self._operands[node]
            scales[node] = prod(share for _, share in state.shares)
            for operand in operands:
                if operand.on_top and state.shares and state.has_attention:
                    raise UnsupportedMethodError(
                        f"a sum in module '{node.path or '(model)'}' adds attention to one of several streams of "
                        "tokens, each with attention of its own, so that no single row goes through them"
                    )
                arrivals.setdefault(operand.value, []).append(state.at(node, operand))
        return scales


@dataclass(frozen=True)
class _Open:
    """What is known of the row that arrives at a value.

    Attributes:
        shares: The terms of sums through which it came, with their shares, of which the other terms have not met it.
        on_top: Whether it is only what attention has added.
        has_attention: Whether something of it is what attention has added.
    """

    shares: frozenset[tuple[tuple[Node, Value], float]] = frozenset()
    on_top: bool = False
    has_attention: bool = False

    def at(self, node: Node, operand: Operand) -> "_Open":
        """What arrives at a term of a sum."""
        if operand.on_top or self.on_top:
            return _Open(on_top=True)
        if operand.share == 1:
            return self
        return _Open(self.shares | {((node, operand.value), operand.share)}, False, self.has_attention)

    def behind_attention(self) -> "_Open":
        """What arrives at the values of attention."""
        return _Open(self.shares, self.on_top, True)


def _joined(arrived: Sequence[_Open], operands: Mapping[Node, Sequence[Operand]]) -> _Open:
    """What arrives at a value from several sides; terms of a sum that have all arrived are the whole row again."""
    parts = [part for part in arrived if not part.on_top]
    if not parts:
        return _Open(on_top=True, has_attention=True)
    shares = dict(pair for part in parts for pair in part.shares)
    for node in {node for node, _ in shares}:
        terms = {(node, operand.value) for operand in operands[node] if not operand.on_top}
        if terms <= shares.keys():
            for term in terms:
                del shares[term]
    has_attention = any(part.has_attention or part.on_top for part in arrived) and bool(shares)
    return _Open(frozenset(shares.items()), False, has_attention)


def _counts(ways: Sequence[_Ways]) -> tuple[int, int, int]:
    """How many maps, states and residual sums are in a sum of some terms."""
    maps = sum(way.maps for way in ways)
    states = sum(way.states for way in ways)
    residuals = sum(way.residuals for way in ways)
    plain = any(way.states and not way.maps for way in ways)
    joins = plain and any(way.maps and not way.states for way in ways)
    return maps, states, residuals + joins


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)
