"""A row of tokens through a whole model: from what the logits pool, through windows and stages, to the input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.propagation.propagator import Propagator, at_least_float32
from lrptrain.relevance.tape.nodes import Node, Value, behind
from lrptrain.relevance.tape.regions import Graph
from lrptrain.relevance.tape.sample_axes import sum_per_sample
from lrptrain.relevance.token_rows.branches import Branches
from lrptrain.relevance.token_rows.maps import probabilities
from lrptrain.relevance.token_rows.row_marks import TokenMarks
from lrptrain.relevance.token_rows.row_rules import MapParts, RowRules, gated
from lrptrain.relevance.tokens.attention_layers import WAY_OUT, check_block
from lrptrain.relevance.tokens.attentions import Attention, find_attentions, has_constant_queries
from lrptrain.relevance.tokens.layout import joints
from lrptrain.relevance.tokens.token_walk import between
from lrptrain.relevance.types import UnsupportedMethodError

# Of an attention, the numbers that a row is multiplied by.
Map = Callable[[Attention], MapParts]


@dataclass(eq=False)
class TokenRows:
    """The way of a row of tokens through a recorded model.

    A row says how much is read from every token. It begins at the logits, follows what they pool back to the last
    tokens, and is multiplied with one map per attention, wherever that is: over the whole sequence, in windows, or over
    fewer keys than queries. Between them it goes on through whatever moves, merges or pools tokens (see `rules`). What
    arrives at the input is the map. For a model that attends over one sequence it is what the product of its matrices
    gives.

    Attributes:
        propagator: The tape.
        logits: The output that is explained.
        place: Where the row ends: the image, or the embeddings that an encoder reads.
    """

    propagator: Propagator
    logits: Value
    place: Value

    @cached_property
    def attentions(self) -> list[Attention]:
        """All attention on the way, first to last, square or not."""
        every = find_attentions(self.propagator.tape, square=False)
        products = {attention.product: attention for attention in every}
        passed = set(between(self.propagator, None, self.logits, products))
        return [attention for attention in every if attention.product in passed]

    @cached_property
    def blocks(self) -> list[int]:
        """The numbers of the attention that counts as a block: not of learned queries, which pool."""
        graph = Graph(self.propagator.tape)
        return [i for i, attention in enumerate(self.attentions) if not has_constant_queries(graph, attention)]

    @cached_property
    def nodes(self) -> list[Node]:
        """The operations between the place and the logits along which rows go.

        Raises:
            UnsupportedMethodError: If none go all the way: attention reads values of another input, such as an image.
        """
        products = {attention.product: attention for attention in self.attentions}

        def read(node: Node) -> Sequence[Value | Tensor]:
            return [products[node].values] if node in products else node.inputs

        on_the_way = between(self.propagator, self.place, self.logits, products)
        nodes = [node for node, _ in behind(on_the_way, [self.place], read)]
        if not any(self.logits in node.outputs for node in nodes):
            raise UnsupportedMethodError(
                "the explained input only says where attention looks, at values of another input (cross-attention "
                f"without a residual connection?), so that no row of its tokens reaches the logits; {WAY_OUT}"
            )
        return nodes

    @cached_property
    def marks(self) -> TokenMarks:
        """Which entries are of which tokens."""
        products = {attention.product: attention for attention in self.attentions}
        return TokenMarks(self.propagator, self.nodes, products)

    @cached_property
    def states(self) -> Value:
        """The last states of all tokens through which all of the logits come.

        Raises:
            UnsupportedMethodError: If there are none behind the last attention.
        """
        last = self.attentions[self.blocks[-1]].product.outputs[0]
        complete = joints(self.propagator.tape, self.logits, last) - {last, self.logits}
        behind = [value for node in reversed(self.nodes) for value in node.outputs if value in complete]
        if not behind:
            raise UnsupportedMethodError(
                "no states stand between the last attention and the logits from which alone the logits come"
            )
        # Of a single token all is read, wherever it is looked at.
        return next((value for value in behind if self._tokens(value) > 1), behind[-1])

    def _tokens(self, value: Value) -> int:
        if len(value.shape) < 3:  # what has been pooled: its features may come from different tokens
            return 1
        samples = self.propagator.axis(value).axis
        return max((size for axis, size in enumerate(self.marks.compact(value).shape) if axis != samples), default=1)

    # -- Which blocks --------------------------------------------------------------------------------------------------

    def from_block(self, start: int) -> set[int]:
        """The numbers of the attention of the blocks from one on; negative numbers count from the end.

        Raises:
            ValueError: If there is no such block.
        """
        check_block(start, len(self.blocks), "start_layer")
        return set(self.blocks[start % len(self.blocks) :])

    def chosen(self, numbers: set[int]) -> list[Attention]:
        """The attention of some numbers, first to last."""
        return [self.attentions[number] for number in sorted(numbers)]

    def block(self, number: int) -> int:
        """The number of the attention of one block.

        Raises:
            ValueError: If there is no such block.
        """
        check_block(number, len(self.blocks), "block")
        return self.blocks[number]

    # -- Rows ----------------------------------------------------------------------------------------------------------

    def averaged(self, of_map: Map, used: set[int]) -> Float[Tensor, "..."]:
        """A row through the mean of states and attention, R <- (R + R A) / 2; in the shape of the input."""
        return self._walk(of_map, used, None, summed=False, alone=None)

    def summed(self, of_map: Map, used: set[int], pooling: Tensor | None = None) -> Float[Tensor, "..."]:
        """A row through the sum of states and attention, R <- R + R A; in the shape of the input.

        Args:
            of_map: The maps.
            used: Numbers of the attention whose maps count.
            pooling: How much is read from each entry of the last states; by the pooling's own weights if None.
        """
        return self._walk(of_map, used, pooling, summed=True, alone=None)

    def single(self, of_map: Map, number: int) -> Float[Tensor, "..."]:
        """A row through the map of one attention, and around all others; in the shape of the input."""
        return self._walk(of_map, {number}, None, summed=True, alone=number)

    def pooling_from(self, relevance: Tensor) -> Tensor:
        """How much is read from each entry of the last states, of the relevance that arrives there; sums to 1."""
        states = self.states
        features = self.marks.features(states)
        of_tokens = relevance.sum(features, keepdim=True) if features else relevance
        size = relevance.numel() // max(of_tokens.numel(), 1)
        total = sum_per_sample(of_tokens, self.propagator.axis(states), self.propagator.samples)
        by_pooling = self._arriving(states)
        return torch.where(total.abs() > 0, (of_tokens / total / size).expand(states.shape), by_pooling)

    def _arriving(self, value: Value) -> Tensor:
        """The row at a value behind the last block."""
        rules = self._rules(lambda _: (), set(), summed=False, alone=None)
        arrived = self.propagator.propagate({self.logits: self._start}, rules.composite(), [value])
        return arrived[value]

    def _walk(self, of_map: Map, used: set[int], pooling: Tensor | None, *, summed: bool, alone: int | None) -> Tensor:
        rules = self._rules(of_map, used, summed=summed, alone=alone)
        start = {self.logits: self._start} if pooling is None else {self.states: pooling}
        row = self.propagator.propagate(start, rules.composite(), [self.place])[self.place]
        self.propagator.check_order(self.logits)
        return row

    @property
    def _start(self) -> Tensor:
        # Any class does: no rule looks at the numbers of the states.
        start = at_least_float32(self.logits.tensor).new_zeros(self.logits.shape)
        start[:, 0] = 1.0
        return start

    def _rules(self, of_map: Map, used: set[int], *, summed: bool, alone: int | None) -> RowRules:
        pooling = set(range(len(self.attentions))) - set(self.blocks)
        branches = Branches(
            self.nodes,
            self.place,
            self.attentions,
            used | pooling,
            summed=summed,
            alone=alone,
            carriers=self._carriers,
        )
        maps = partial(self._parts, of_map, used, pooling)
        return RowRules(self.marks, branches, self.attentions, maps, averaged=not summed)

    def _parts(self, of_map: Map, used: set[int], pooling: set[int], number: int) -> MapParts | None:
        if number in pooling:
            return probabilities(self.propagator.tape, self.attentions[number])
        return of_map(self.attentions[number]) if number in used else None

    def _carriers(self, node: Node) -> Sequence[Value]:
        return gated(self.marks, self.propagator, node) if node.name == "mul" else node.inputs
