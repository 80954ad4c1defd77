"""What every token contributes to every token in one transformer block: norms, mixing ratios, shares of a logit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.decomposition.blocks import Block
from lrptrain.relevance.decomposition.linearised import Link, Step, chain, linearise, push
from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.tape.nodes import Value

States = Float[Tensor, "batch length width"]
Map = Float[Tensor, "batch length length"]
# What the parts that are pushed at a time may take in memory.
_BYTES = 2**24


@dataclass(eq=False)
class Contributions:
    """The attention of one block as a sum over source tokens, z_ij, and how these parts continue from there."""

    recording: Recording
    block: Block

    @cached_property
    def weights(self) -> Float[Tensor, "batch heads length length"]:
        """What weighs the values, alpha."""
        return self.recording.per_head(self.block.weights, self.block.weights.tensor)

    @cached_property
    def heads(self) -> Float[Tensor, "batch heads length width"]:
        """f^h(x_j): each head's output, without the output bias, where token j attends to nothing but itself."""
        value = self.block.weights
        x = at_least_float32(self.block.weights.tensor)
        lead = x.shape[:-2]
        length = x.shape[-1]
        places = torch.arange(lead.numel(), device=x.device, dtype=x.dtype).view(*lead, 1, 1)
        # Which head stands where: [batch, heads], whichever way the model merges heads and samples.
        order = self.recording.per_head(value, places).long().flatten(1)
        masks = torch.stack([x.new_zeros(lead.numel()).index_fill(0, head, 1.0).view(*lead, 1, 1) for head in order.T])
        itself = torch.eye(length, dtype=x.dtype, device=x.device)
        links = chain(self.recording.tape, [value], [self.block.attention])
        steps = linearise(links)
        size = _at_a_time(links, value)

        def alone(mask: Tensor) -> Tensor:
            return self.batch_first(self.block.attention, push(steps, {value: mask * itself})[self.block.attention])

        return torch.func.vmap(alone, chunk_size=size)(masks).transpose(0, 1)

    @cached_property
    def residual(self) -> States:
        """x_i, what every token passes by the attention."""
        return self.batch_first(self.block.residual, at_least_float32(self.block.residual.tensor))

    def norms(self, sites: Sequence[Value]) -> list[Map]:
        """|| z_ij ||: how much of row i's value at each site comes from token j."""
        steps, size = self._steps(sites)

        def column(weights: Tensor, heads: Tensor, mark: Tensor) -> tuple[Tensor, ...]:
            attention = torch.einsum("bhi,bhd->bid", weights, heads)
            parts = self._pushed(steps, attention, self.residual * mark[:, None], sites)
            return tuple(torch.linalg.vector_norm(part, dim=-1) for part in parts)

        marks = torch.eye(self.weights.shape[-1], dtype=self.weights.dtype, device=self.weights.device)
        columns = torch.func.vmap(column, in_dims=(3, 2, 0), out_dims=2, chunk_size=size)
        return list(columns(self.weights, self.heads, marks))

    def mixing_ratios(self, sites: Sequence[Value]) -> list[Float[Tensor, "batch length"]]:
        """|| sum_{j != i} z_ij || / (|| sum_{j != i} z_ij || + || z_ii ||) at each site (Kobayashi et al. 2021)."""
        steps, _ = self._steps(sites)
        weights = self.weights
        heads = self.heads
        from_itself = torch.einsum("bhi,bhid->bid", weights.diagonal(dim1=-2, dim2=-1), heads)
        from_others = torch.einsum("bhij,bhjd->bid", weights, heads) - from_itself
        parts = [
            self._pushed(steps, from_others, torch.zeros_like(self.residual), sites),
            self._pushed(steps, from_itself, self.residual, sites),
        ]
        ratios = []
        for mixed, preserved in zip(*parts, strict=True):
            a = torch.linalg.vector_norm(mixed, dim=-1)
            b = torch.linalg.vector_norm(preserved, dim=-1)
            ratios.append(a / torch.where(a + b == 0, 1.0, a + b))
        return ratios

    def shares(self, explanation: Explanation, site: Value, stream: Value, *, residual: bool) -> States:
        """What every token contributes to the explained logit, by way of one site: sum_i <c_i, z_ij>.

        c is the frozen linear map from `stream` to the explained logit, whose place the value at the site takes. The
        map is transposed once, so that no part is pushed.

        Returns:
            [batch, length], signed.
        """
        steps, _ = self._steps([site])
        rest = linearise(chain(self.recording.tape, [stream], [self.recording.output]))
        with torch.enable_grad():
            attention = torch.zeros_like(self.residual, requires_grad=True)
            passed = torch.zeros_like(self.residual, requires_grad=True)
            (value,) = self._pushed(steps, attention, passed, [site])
            logits = push(rest, {stream: self.batch_first(stream, value)})[self.recording.output]
            explained = explanation.explained(logits).sum()
        of_attention, of_residual = torch.autograd.grad(
            explained, [attention, passed], create_graph=explanation.create_graph, materialize_grads=True
        )
        per_head = torch.einsum("bid,bhjd->bhij", of_attention, self.heads)
        shares = (self.weights * per_head).sum((1, 2))
        return shares + (of_residual * self.residual).sum(-1) if residual else shares

    def batch_first(self, value: Value, states: Tensor) -> Tensor:
        """Bring states of the layout of `value` to [batch, length, width], and back."""
        tokens = self.recording.propagator.token_axis(value, self.recording.length)
        return states if tokens == 1 else states.transpose(0, 1)

    def _steps(self, sites: Sequence[Value]) -> tuple[list[Step], int]:
        links = chain(self.recording.tape, [self.block.attention, self.block.residual], sites)
        return linearise(links), _at_a_time(links, self.block.attention)

    def _pushed(self, steps: list[Step], attention: Tensor, residual: Tensor, sites: Sequence[Value]) -> list[Tensor]:
        block = self.block
        sources = {
            block.attention: self.batch_first(block.attention, attention),
            block.residual: self.batch_first(block.residual, residual),
        }
        values = push(steps, sources)
        return [self.batch_first(site, values[site]) for site in sites]


def _at_a_time(links: Sequence[Link], source: Value) -> int:
    """How many parts fit into the memory that they may take."""
    values = [source, *(value for link in links for value in link.node.outputs)]
    return max(1, _BYTES // max(at_least_float32(value.tensor).nbytes for value in values))
