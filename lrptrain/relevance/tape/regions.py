"""Several operations of a tape as one function of the value that they all come from."""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from lrptrain.relevance.tape.nodes import Node, Value, numbers_in
from lrptrain.relevance.tape.tape import Tape


@dataclass(eq=False)
class Region:
    """The operations between one value and another, in order, as a function of the first.

    Of `y = x * torch.sigmoid(1.702 * x)` these are mul, sigmoid and mul, from x to y.
    """

    nodes: tuple[Node, ...]
    source: Value
    result: Value

    def __call__(self, x: Tensor) -> Tensor:
        """Repeat the operations from another source."""
        return run(self.nodes, {self.source: x})[self.result]

    def as_node(self, name: str) -> Node:
        """The region as one operation of the tape."""
        constants = tuple(pair for node in self.nodes for pair in node.constants)
        return Node(name, self, (self.source,), {}, (self.source,), (self.result,), self.nodes[-1].path, constants)


def run(nodes: Iterable[Node], values: dict[Value, Tensor], skipped: Container[Node] = ()) -> dict[Value, Tensor]:
    """Repeat operations in order, from the values that are known; the skipped ones pass their input on."""
    for node in nodes:
        if node in skipped:
            values[node.outputs[0]] = values[node.inputs[0]]
            continue
        results = numbers_in(node.call(values.__getitem__))
        values.update(zip(node.outputs, results, strict=True))
    return values


@dataclass(eq=False)
class Graph:
    """Who makes and who reads the values of a tape."""

    tape: Tape
    readers: dict[Value, list[Node]] = field(init=False)
    _position: dict[Value, int] = field(init=False)

    def __post_init__(self) -> None:
        self._position = {value: i for i, node in enumerate(self.tape.nodes) for value in node.outputs}
        self.readers = {}
        for node in self.tape.nodes:
            for value in node.inputs:
                self.readers.setdefault(value, []).append(node)

    def producer(self, value: Value) -> Node | None:
        """The operation that made a value; None for the input."""
        at = self._position.get(value)
        return None if at is None else self.tape.nodes[at]

    def makers(self, value: Value, read: Callable[[Node], Iterable[Value]]) -> Iterator[Node]:
        """The operations that a value comes from, beginning at the last; `read` says by which inputs of each."""
        pending = [value]
        seen = set(pending)
        while pending:
            node = self.producer(pending.pop())
            if node is not None:
                yield node
                new = [each for each in read(node) if each not in seen]
                pending += new
                seen.update(new)

    def between(self, end: Node, allowed: Container[str]) -> tuple[Value, set[Node]] | None:
        """The nearest value from which all operands of `end` come by allowed operations, and these operations."""
        # Replace the latest value of the frontier by the inputs of its producer until one value is left:
        #     {y}  ->  {x, s}  ->  {x, m}  ->  {x}      for y = x * s, s = sigmoid(m), m = 1.702 * x
        members = {end}
        frontier = set(end.inputs)
        while len(frontier) > 1:
            latest = max(frontier, key=lambda value: self._position.get(value, -1))
            producer = self.producer(latest)
            if producer is None or producer.name not in allowed:
                return None
            members.add(producer)
            frontier = frontier.difference(producer.outputs).union(producer.inputs)
        return frontier.pop(), members

    def closed(self, members: set[Node], result: Value) -> bool:
        """Whether nothing outside reads what is made inside."""
        inside = {value for node in members for value in node.outputs} - {result}
        return all(reader in members for value in inside for reader in self.readers.get(value, ()))

    def ordered(self, members: Iterable[Node]) -> tuple[Node, ...]:
        """Operations in the order of the tape."""
        return tuple(sorted(members, key=lambda node: self._position[node.outputs[0]]))
