"""Generic attention by a forward pass that keeps the attention of a model, and one gradient at it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.fast.kernels import at_a_time
from lrptrain.relevance.fast.structure import structure_of
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.registry import RelevanceMaps
from lrptrain.relevance.swapped.calls import FUSED, NOTED
from lrptrain.relevance.swapped.plan import Mismatch, Plan, maker
from lrptrain.relevance.swapped.planned_pass import KeptCall, PlannedPass
from lrptrain.relevance.tape.explicit import attention_map, attention_operands
from lrptrain.relevance.tape.functions import canonical_name
from lrptrain.relevance.tape.nodes import making
from lrptrain.relevance.tokens.provenance import NOWHERE
from lrptrain.relevance.tokens.token_walk import numbered

if TYPE_CHECKING:
    from lrptrain.relevance.explanation import Explanation
    from lrptrain.relevance.passes.recording import Recording


@dataclass(eq=False)
class MapPlan(Plan):
    """Where attention maps are, by the number of the call that makes them, or their product with the values.

    Attributes:
        layers: The calls of every layer, first to last.
        merged: How many heads are merged into the samples, by call.
        states: The call that makes the last states of all tokens, of which the logits read one.
        axis: Which of its axes counts the tokens.
        before: Tokens before those of the input.
        behind: And behind them.
    """

    layers: list[list[int]] = field(default_factory=list, init=False)
    merged: dict[int, int] = field(default_factory=dict, init=False)
    states: int = field(default=0, init=False)
    axis: int = field(default=1, init=False)
    before: int = field(default=0, init=False)
    behind: int = field(default=0, init=False)
    read: ClassVar[frozenset[str]] = NOTED
    reads_places: ClassVar[bool] = True

    def _add_all(self, recording: "Recording", numbers: dict[int, int]) -> None:
        made = making(recording.tape.nodes, [recording.token_output])
        if structure_of(made, recording.propagator.root) is None:
            raise Mismatch("numbers say where the tokens go")
        with torch.no_grad():
            layers = recording.attention_layers.layers()
            if not _read_one_token(recording) or any(layer.queries != layer.keys for layer in layers):
                raise Mismatch("the logits read several tokens, or tokens of two kinds")
            self.before, self.behind = _around(recording.layout.positions, recording.layout.length)
        for layer in layers:
            self.layers.append([])
            for attention in layer.maps:
                (block, *others), number = attention.parts, maker(recording, attention.parts[0], numbers)
                at = recording.propagator.axis(block)
                self.merged[number], left = divmod(block.shape[0], recording.samples)
                if others or at.axis != 0 or at.rows is not None or at.inner != self.merged[number] or left:
                    raise Mismatch("maps that are sums, or whose first axis does not begin with the samples")
                self.layers[-1].append(number)
        self.states = maker(recording, recording.token_output, numbers)
        axis = recording.propagator.token_axis(recording.token_output, recording.length)
        if axis is None:
            raise Mismatch("states of which the shape does not say where the tokens are")
        self.axis = axis
        for number in (self.states, *chain(*self.layers)):
            self.calls[number].is_kept = True


def _read_one_token(recording: "Recording") -> bool:
    """Whether all logits of a sample read one and the same token of the last states, whatever the numbers."""
    origins, _ = numbered(recording.propagator, recording.token_output, recording.length)
    for node in recording.tape.nodes:
        if any(value in origins for value in node.inputs) and recording.token_output not in node.outputs:
            origins.follow(node)
    tokens = origins[recording.output]
    is_one = bool((tokens > NOWHERE).all()) and bool((tokens == tokens[:, :1]).all())
    return is_one and recording.pools_one_token


def _around(positions: tuple[int, ...], length: int) -> tuple[int, int]:
    """How many tokens stand before and behind those of the input, which are in order and without a gap."""
    if not positions or positions != tuple(range(positions[0], positions[0] + len(positions))):
        raise Mismatch("tokens of the input that are in another order")
    return positions[0], length - 1 - positions[-1]


@dataclass(eq=False)
class MapPass(PlannedPass):
    """Keeps attention; its gradients are those of the model. See `generic_attention` for what is made of them."""

    plan: MapPlan = field(kw_only=True)

    def maps(self, explanation: "Explanation") -> RelevanceMaps:
        """Return relevance by R <- R + mean_h((dy/dA * A)+) R, of the one token that the logits read."""
        plan, recording = self.plan, explanation.recording
        numbers = [*chain(*plan.layers)]
        *at_maps, of_states = self.gradient(explanation, [self.kept[i].result for i in (*numbers, plan.states)])
        read = of_states.abs().sum(-1) if plan.axis == 1 else of_states.abs().sum(-1).T
        if not bool(((read != 0).sum(1) == 1).all()):
            raise Mismatch("the logits read another number of tokens than one")
        row = (read != 0).to(at_least_float32(read).dtype)
        gradients = dict(zip(numbers, at_maps, strict=True))
        for layer in reversed(plan.layers):
            row = row + sum(_passed_on(self.kept[i], gradients[i], row, plan.merged[i]) for i in layer)
        scores = row[:, plan.before : row.shape[1] - plan.behind]
        if scores.shape[1] != recording.explained.tokens:
            raise Mismatch("the model has added or dropped tokens")
        return RelevanceMaps(scores)


def _passed_on(call: KeptCall, gradient: Tensor, row: Float[Tensor, "batch length"], merged: int) -> Tensor:
    """A row times the positive part of a map times its gradient, mean over heads: `[batch, length]`."""
    function = canonical_name(call.function)
    parts = _products(call, gradient, row.dtype) if function == FUSED else _product(call, gradient, row.dtype)
    total = torch.zeros_like(row)
    for queries, product in parts:
        if product.shape[0] != merged * len(row):
            raise Mismatch("another number of heads")
        per_head = product.clamp_(min=0).reshape(len(row), -1, *product.shape[-2:])
        total += (row[:, None, None, queries] @ per_head).mean(1)[:, 0]
    return total


def _product(call: KeptCall, gradient: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """A map that the model has made, times its gradient."""
    yield slice(None), call.result.detach().to(dtype) * gradient


def _products(call: KeptCall, gradient: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """The map within fused attention times its gradient, some queries at a time; of the gradient at the output."""
    *operands, mask = attention_operands(*call.args, **call.kwargs)
    query, key, value = (x.detach().to(dtype) for x in operands)
    queries, keys = query.shape[-2], key.shape[-2]
    height = max(1, at_a_time(query.device) // (query.shape[:-2].numel() * keys))
    for start in range(0, queries, height):
        rows = slice(start, min(start + height, queries))
        of_rows = mask if mask is None or mask.ndim < 2 or mask.shape[-2] == 1 else mask[..., rows, :]
        yield rows, attention_map(query[..., rows, :], key, of_rows) * (gradient[..., rows, :].to(dtype) @ value.mT)
