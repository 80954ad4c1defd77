"""The backward walk over a tape: relevance flows from the logits towards the input, one rule per operation."""

import copy
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn

from lrptrain.relevance.fast.kernels import KernelAttention, QueryRows
from lrptrain.relevance.fast.structure import once_per_structure, structure_of
from lrptrain.relevance.propagation.composite import (
    Composite,
    InputRelevance,
    OutputRelevance,
    RuleFunction,
    custom_rule,
    custom_rules,
)
from lrptrain.relevance.propagation.rules import safe_divide
from lrptrain.relevance.tape.functions import COPIES, ELEMENTWISE, ENTRIES
from lrptrain.relevance.tape.nodes import Node, Value, unsupported
from lrptrain.relevance.tape.regions import Region
from lrptrain.relevance.tape.sample_axes import Axes, SampleAxis, sample_axes, sum_per_sample
from lrptrain.relevance.tape.tape import Tape

T = TypeVar("T")

# Scaling and shifting by constants leaves pixels what they are.
_PREPROCESSING = frozenset({"add", "sub", "mul", "div"})


@dataclass(eq=False)
class Propagator:
    """Passes relevance backwards over a tape, operation by operation; rules may ask it for more than their own node.

    For the `model`, if one is given, is remembered what follows from the structure of its tapes.
    """

    tape: Tape
    samples: int
    model: nn.Module | None = None

    @cached_property
    def axes(self) -> Axes:
        """The sample axis of every recorded value."""
        root = self.root
        values = dict.fromkeys((root, *(value for node in self.tape.nodes for value in node.outputs)))
        found = self.once_per_structure(
            ("axes", self.samples), lambda: [*sample_axes(self.tape.nodes, root, self.samples).values()]
        )
        return dict(zip(values, found, strict=True))

    def once_per_structure(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what `find` finds by the structure of the tape alone, or found in an earlier pass; see `structure`."""
        if self.model is None or self.structure is None:
            return find()
        return once_per_structure(self.model, (key, self.structure), find)

    @cached_property
    def structure(self) -> Hashable | None:
        """What tells the operations of this tape from those of others; None where their numbers decide."""
        return structure_of(self.tape.nodes, self.root)

    @cached_property
    def patch_embedding(self) -> set[Node]:
        """The convolution that cuts images into patches: the first weighted operation, called once per sample or once.

        Empty if that is no convolution.
        """
        weighted = [node for node in self.tape.nodes if node.name in ("linear", "conv2d", "matmul")]
        if not weighted or weighted[0].name != "conv2d":
            return set()
        weight = weighted[0].argument(1, "weight")
        return {node for node in weighted if node.name == "conv2d" and node.argument(1, "weight") is weight}

    @cached_property
    def pixels(self) -> tuple[list[Node], set[Value]]:
        """The operations that only move, scale or shift the pixels of an image, and all values that hold pixels."""
        root = self.root
        nodes: list[Node] = []
        copies = {root} if len(root.shape) >= 4 else set[Value]()
        for node in self.tape.nodes if copies else ():
            affine = node.name in _PREPROCESSING and len(node.inputs) == 1
            if (affine or node.name in ENTRIES | COPIES) and copies.issuperset(node.inputs):
                nodes.append(node)
                copies.update(node.outputs)
        return nodes, copies

    @cached_property
    def from_softmaxes(self) -> set[Value]:
        """The values that depend on the input through outputs of softmaxes only: constants, where those are."""
        values: set[Value] = set()
        for node in self.tape.nodes:
            if node.name == "softmax" or (node.inputs and values.issuperset(node.inputs)):
                values.update(node.outputs)
        return values

    @property
    def root(self) -> Value:
        """The explained input, the image or the word embeddings."""
        assert self.tape.root is not None
        return self.tape.root

    def producer(self, value: Value) -> Node | None:
        """The operation that made a value; None for the input."""
        return self._producers.get(value)

    @cached_property
    def _producers(self) -> dict[Value, Node]:
        return {value: node for node in self.tape.nodes for value in node.outputs}

    def has_custom_rule(self, composite: Composite) -> bool:
        """Return whether a rule of the user's serves one of the operations, in the place of the composite's own."""
        return bool(custom_rules()) and any(custom_rule(node, composite.name) is not None for node in self.tape.nodes)

    def total(self, node: Node) -> Callable[[Tensor], Tensor]:
        """The sum per sample, for tensors of the shape of the node's output."""
        at = self.axis(node.outputs[0])
        if self.samples == 1:
            return torch.Tensor.sum
        return lambda x: sum_per_sample(x, at, self.samples)

    def axis(self, value: Value) -> SampleAxis:
        """The sample axis of `value`."""
        at = self.axes[value]
        if at is None:
            node = self._loses_samples(value)
            raise unsupported(node.name, node.path, "mixes the samples of a batch: their axis is lost in it")
        return at if self.samples > 1 else SampleAxis(0, value.shape[0])

    def _loses_samples(self, value: Value) -> Node:
        """The first operation on the way to a value that has no sample axis any more."""
        while True:
            node = self.producer(value)
            assert node is not None
            before = next((lost for lost in node.inputs if self.axes[lost] is None), None)
            if before is None:
                return node
            value = before

    def check_order(self, logits: Value) -> None:
        """Raise if the logits are not those of the samples in their order: a map would be of another sample's logit."""
        if self.axis(logits) == SampleAxis(0) or self.samples == 1:
            return
        node = self.producer(logits)
        name, path = ("input", "") if node is None else (node.name, node.path)
        raise unsupported(name, path, "makes logits of the samples of a batch in another order than theirs")

    def token_axis(self, value: Value, length: int) -> int | None:
        """Which axis counts the tokens in states `[batch, length, width]` or `[length, batch, width]`, else None."""
        # With as many samples as tokens the shape does not tell them apart; the sample axis does.
        shape = value.shape
        at = self.axes[value]
        if len(shape) != 3 or at is None or at.rows is not None:
            return None
        for tokens, samples in ((1, 0), (0, 1)):
            if (
                shape[tokens] == length
                and shape[samples] == self.samples
                and (samples == at.axis or shape[samples] == 1)
            ):
                return tokens
        return None

    def per_token(self, value: Value, relevance: Tensor, length: int) -> Tensor:
        """Sum relevance of token states over their width: `[batch, length]`."""
        return relevance.sum(-1) if self.token_axis(value, length) == 1 else relevance.sum(-1).T

    def propagate(
        self, start: Mapping[Value, Tensor], composite: Composite, keep: Iterable[Value]
    ) -> dict[Value, Tensor]:
        """Propagate relevance and return what arrives at the values to `keep`; see `propagate_stepwise`."""
        return dict(self.propagate_stepwise(start, composite, keep))

    def propagate_stepwise(
        self, start: Mapping[Value, Tensor], composite: Composite, keep: Iterable[Value]
    ) -> Iterator[tuple[Value, Tensor]]:
        """Propagate relevance, and yield what arrives at each value to `keep` as soon as it is complete (0 if nothing).

        The pass ends at the earliest operation that makes one of them. A user's rules go before the composite's.
        """
        for value, _, part in self.propagate_by_rows(start, composite, keep, ()):
            yield value, part

    def propagate_by_rows(
        self,
        start: Mapping[Value, Tensor],
        composite: Composite,
        keep: Iterable[Value],
        in_rows: Iterable[Value],
    ) -> Iterator[tuple[Value, slice, Tensor]]:
        """Propagate relevance as `propagate_stepwise` does, and yield that of large attention maps in parts.

        Args:
            start: Relevance to begin with.
            composite: The rules.
            keep: The values of interest, which are yielded as a whole, with `slice(None)`.
            in_rows: Maps of fused attention: each part is yielded with the queries that it belongs to, from the first
                to the last. Queries at which no relevance arrives are left out. Where the composite, or a rule of the
                user's, needs all of a map at once, it is yielded as a whole.
        """
        wanted = {*keep, *in_rows}
        kept_whole = set(keep)
        # Relevance that has arrived at a value, but not yet passed the operation that made it.
        arrived: dict[Value, Tensor] = dict(start)
        rule_of = _RuleFinder(composite)
        makers = (i for i, node in enumerate(self.tape.nodes) if not wanted.isdisjoint(node.outputs))
        end = 0 if self.tape.root in wanted else next(makers, 0) + 1
        for node in reversed(self.tape.nodes[end:]):
            relevance = [arrived.get(value) for value in node.outputs]
            for part in relevance:
                if part is not None:
                    break
            else:  # nothing has arrived
                continue
            if composite.stabiliser:
                relevance = [self._complete(*pair, composite) for pair in zip(node.outputs, relevance, strict=True)]
            node.check_constants()
            shares: InputRelevance
            attention = self._fused(node, composite, kept_whole) if self._attentions else None
            if attention is not None:
                (part,) = relevance
                assert part is not None
                rule = composite.rule_for(attention.node)
                if rule is None or wanted.intersection(attention.inside):
                    shares = yield from self._by_queries(attention, part, composite, wanted)
                    wanted.difference_update(attention.inside)
                else:
                    shares = rule(self, attention.node, relevance)
            else:
                shares = rule_of(node)(self, node, relevance)
            # A value that several operations read gets the sum of what they pass; all of them come later on the tape.
            for value, share in shares:
                arrived[value] = arrived[value] + share if value in arrived else share
            for value, part in zip(node.outputs, relevance, strict=True):
                arrived.pop(value, None)
                if value in wanted and part is not None:
                    wanted.remove(value)
                    yield value, slice(None), part
        for value in wanted:
            part = self._complete(value, arrived.get(value), composite)
            none = torch.zeros_like(at_least_float32(value.tensor)) if part is None else part
            yield value, slice(None), none

    # -- Fused attention ----------------------------------------------------------------------------------------------

    def kernel(self, node: Node) -> KernelAttention:
        """The fused attention of which a node is all operations together."""
        return self._attentions[node.outputs[0]]

    @cached_property
    def _attentions(self) -> dict[Value, KernelAttention]:
        """The fused attention of which all operations are on the tape as they were recorded, by its output."""
        recorded = set(self.tape.nodes)
        attentions = [] if self.tape.kernels is None else self.tape.kernels.attentions
        return {x.output: x for x in attentions if recorded.issuperset(x.nodes) and self._keeps_queries_apart(x)}

    def _keeps_queries_apart(self, attention: KernelAttention) -> bool:
        """Whether some queries can be taken without taking some samples."""
        values = (*attention.operands, *attention.inside, attention.output)
        return all((at := self.axes[value]) is not None and at.axis < len(value.shape) - 2 for value in values)

    def _fused(self, node: Node, composite: Composite, whole: set[Value]) -> KernelAttention | None:
        """The attention that ends with a node, if relevance can pass it without any of its matrices as a whole."""
        attention = self._attentions.get(node.outputs[0])
        if attention is None or node is not attention.nodes[-1] or not composite.by_queries:
            return None
        if torch.is_grad_enabled() and (not attention.call.twice or composite.rule_for(attention.node) is None):
            return None  # some queries at a time, and the gradient of a kernel, have no graph
        has_rules = any(custom_rule(part, composite.name) is not None for part in attention.nodes)
        return None if has_rules or whole.intersection(attention.inside) else attention

    def _by_queries(
        self, attention: KernelAttention, part: Tensor, composite: Composite, wanted: set[Value]
    ) -> Generator[tuple[Value, slice, Tensor], None, list[tuple[Value, Tensor]]]:
        """Pass relevance through fused attention, some queries at a time; yield what arrives at values inside."""
        query = attention.operands[0]
        of_query = torch.zeros(query.shape, dtype=part.dtype, device=part.device)
        shares: dict[Value, Tensor] = {}
        is_last = wanted.issubset(attention.inside)  # nothing before it is asked for
        for rows in attention.slices(part):
            part_of_rows = part[..., rows, :]
            some = attention.of_queries(rows, part.dtype)
            local = self._of_queries(some)
            rule_of = _RuleFinder(composite)
            arrived = {some.nodes[-1].outputs[0]: part_of_rows}
            original = {piece: value for value, piece in some.parts.items()}
            for node in reversed(some.nodes):
                relevance = arrived.pop(node.outputs[0], None)
                if relevance is None:
                    continue
                value = original[node.outputs[0]]
                if value in wanted:
                    yield value, rows, relevance
                    if is_last:
                        break
                for piece, share in rule_of(node)(local, node, [relevance]):
                    arrived[piece] = arrived[piece] + share if piece in arrived else share
            if some.query in arrived:
                of_query[..., rows, :] = arrived.pop(some.query)
            for piece, share in arrived.items():
                value = original[piece]
                shares[value] = shares[value] + share if value in shares else share
        return [(query, of_query), *shares.items()]

    def _of_queries(self, some: QueryRows) -> "Propagator":
        """This propagator, for operations on some queries of an attention."""
        query = some.nodes[0].outputs[0]
        original = {piece: value for value, piece in some.parts.items()}
        axes = {piece: self.axes[value] for piece, value in original.items()}
        local = copy.copy(self)
        local.axes = {**axes, some.query: axes[query]}
        local.from_softmaxes = {piece for piece, value in original.items() if value in self.from_softmaxes}
        local._producers = {value: node for node in some.nodes for value in node.outputs}
        return local

    def _complete(self, value: Value, part: Tensor | None, composite: Composite) -> Tensor | None:
        """What has arrived at a value, divided by the value once more if the composite does so."""
        if part is None or not composite.stabiliser or self._reads[value] < 2:
            return part
        x = value.tensor.to(part.dtype)
        return x * safe_divide(part, x, composite.stabiliser)

    @cached_property
    def _reads(self) -> Counter[Value]:
        """How many operations read each value."""
        return Counter(value for node in self.tape.nodes for value in node.inputs)


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in the precision in which rules compute: float32 at least."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class _RuleFinder:
    """Finds the rule of each operation: once for all of a name, where neither modules nor a user's rules count."""

    def __init__(self, composite: Composite) -> None:
        self._composite = composite
        self._of_names = not (composite.names_modules or custom_rules())
        self._known: dict[str, RuleFunction] = {}

    def __call__(self, node: Node) -> RuleFunction:
        """Return the rule."""
        for value in (*node.inputs, *node.outputs):
            if value.is_complex:
                raise unsupported(node.name, node.path, "computes with complex numbers, other than a rotation of pairs")
        rule = self._known.get(node.name) if self._of_names else None
        if rule is None:
            rule = self._known[node.name] = _rule_for(node, self._composite)
        return rule


def _rule_for(node: Node, composite: Composite) -> RuleFunction:
    rule = composite.rule_for(node)
    if composite.replaceable:
        rule = custom_rule(node, composite.name) or rule
    elif rule is None and node.name not in ELEMENTWISE:
        rule = custom_rule(node, None)
    if rule is None and node.name in ELEMENTWISE:
        rule = unchanged
    if rule is None:
        # Of several operations that count as one, the model knows the parts only.
        parts = [part.name for part in node.function.nodes] if isinstance(node.function, Region) else []
        why = f"has no propagation rule (it is {', '.join(parts)})" if parts else "has no propagation rule"
        raise unsupported(node.name, node.path, why)
    return rule


def unchanged(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Pass relevance through an elementwise operation or a normalisation as it is."""
    part, *rest = relevance
    for value in only_input(node):
        if part is None or part.shape != value.shape or any(other is not None for other in rest):
            raise unsupported(node.name, node.path, "changes the shape of its input")
        yield value, part


def only_input(node: Node) -> Iterator[Value]:
    """The input that an operation of one variable passes on; none where only a shape or a type depends on it."""
    source = node.argument(0, "input")
    exponent = node.argument(1, "exponent") if node.name == "pow" else None
    if isinstance(exponent, (int, float)) and exponent < 0:
        raise unsupported(node.name, node.path, "has no propagation rule where it is one over an activation")
    if node.name not in ("to", "type_as") and any(value is not source for value in node.inputs):
        raise unsupported(node.name, node.path, "depends on the input in more than its first argument")
    if isinstance(source, Value):
        yield source
