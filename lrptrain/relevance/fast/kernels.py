"""Fused attention that stays fused: a tape has its operations one by one, and holds none of their matrices.

`softmax(q k^T) v` takes memory in proportion to its tokens in a fused kernel, and in proportion to their square where
the matrices between its operations are kept. So the model's own kernel makes the output, with its gradient, and the
tape gets the operations that the kernel stands for without their results: whoever asks for one of them, it is computed
from queries and keys, and not kept. Rules, token walks and methods find what they find in attention that is written
out. Three ways need no matrix at all:

- gradients go through the kernel (`KernelAttention.gradients`);
- every operation inside works on each query by itself, so that a few queries at a time give the same, part by part
  (`KernelAttention.slices`, `queries`);
- a row times the map is a sum over such parts.

Short sequences are written out as before: their matrices are small, and made once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import TensorWeakRef

from lrptrain.relevance.fast.double_backward import Scoring, attend
from lrptrain.relevance.tape.nodes import Node, Value, map_nested, version_of

# Up to as many entries in the map of one head, attention is written out. Measured on a CPU at ViT-S (197 tokens, batch
# 8): fused, attnlrp, lrp and transformer_attribution take no more time, and three quarters of the memory.
LARGEST_WRITTEN_OUT = 128 * 128
# As many entries of all maps together are made at a time where attention is computed in parts: about a cache of them.
# A GPU says how large its own is.
ENTRIES_AT_A_TIME = 1 << 21
# The name of all operations of such an attention together, for a rule that serves them at once.
FUSED_ATTENTION = "fused_attention"
# What torch answers where it has no fused kernel for a call.
_WRITTEN_OUT = 0


class KernelError(Exception):
    """The model cannot be recorded with fused attention, but with attention that is written out."""


class KernelCall(NamedTuple):
    """The arguments of a call that a fused kernel serves, with as many heads of keys as of queries.

    Attributes:
        query: `[..., queries, width]`.
        key: `[..., keys, width]`.
        value: `[..., keys, width]`.
        mask: The mask that the kernel is given, or None.
        is_causal: Whether it blocks the keys behind each query.
        scale: What the products of queries and keys are multiplied by.
        summand: What the mask, or the order of a decoder, adds to the scores: 0, or the lowest number.
        twice: Whether its gradient is to be differentiated, which kernels do not do.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    is_causal: bool
    scale: float
    summand: Tensor | None = None
    twice: bool = False

    def run(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The attention of these queries, keys and values, or of their views."""
        if self.twice:
            return attend(query, key, value, self.scoring)
        return F.scaled_dot_product_attention(query, key, value, self.mask, is_causal=self.is_causal, scale=self.scale)

    @property
    def scoring(self) -> Scoring:
        """How queries and keys become scores."""
        return Scoring(self.scale, self.summand)

    def again(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The attention of the same numbers in another precision."""
        # The model may have written into its mask since; the summand is the tape's.
        mask = None if self.is_causal or self.summand is None else self.summand.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=self.is_causal, scale=self.scale)


@dataclass(eq=False)
class KernelAttention:
    """One call of fused attention, and the operations that it stands for.

    Attributes:
        nodes: mul (by the scale), transpose (of the keys), matmul, add (of the mask, if there is one), softmax, matmul.
        call: What the kernel was given.
        ends: The places in the graph of queries, keys and values as the kernel read them.
    """

    nodes: tuple[Node, ...]
    call: KernelCall
    ends: tuple[torch.autograd.graph.GradientEdge, ...]

    @property
    def block(self) -> Value:
        """The attention probabilities."""
        return self.nodes[-2].outputs[0]

    @property
    def output(self) -> Value:
        """What the kernel has made."""
        return self.nodes[-1].outputs[0]

    @property
    def inside(self) -> tuple[Value, ...]:
        """The values between the operations, which nobody holds."""
        return tuple(node.outputs[0] for node in self.nodes[:-1])

    @property
    def operands(self) -> tuple[Any, Any, Any]:
        """Queries, keys and values."""
        return self.nodes[0].args[0], self.nodes[1].args[0], self.nodes[-1].args[1]

    @property
    def node(self) -> Node:
        """All of it as one operation."""
        inputs = tuple(dict.fromkeys(x for x in self.operands if isinstance(x, Value)))
        last = self.nodes[-1]
        return Node(FUSED_ATTENTION, self.call.run, self.operands, {}, inputs, last.outputs, last.path)

    # -- The gradient through the kernel ------------------------------------------------------------------------------

    def gradients(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients at queries, keys and values, of that at the output; the kernel's own backward pass.

        Where a graph is asked for they have one: only attention that has a second derivative is to be asked then.
        """
        numbers = [x.tensor if isinstance(x, Value) else x for x in self.operands]
        output = self.output.edge
        with_graph = torch.is_grad_enabled()
        if output is not None and gradient.dtype == numbers[0].dtype:
            query, key, value = torch.autograd.grad(
                [output], self.ends, [gradient], retain_graph=True, create_graph=with_graph
            )
        elif with_graph:
            views = [x.to(gradient.dtype) for x in numbers]
            attended = self.call.run(*views)
            query, key, value = torch.autograd.grad(attended, views, gradient, create_graph=True)
        else:
            with torch.enable_grad():
                leaves = [x.detach().to(gradient.dtype).requires_grad_() for x in numbers]
                again = self.call.again(*leaves)
            query, key, value = torch.autograd.grad(again, leaves, gradient)
        return query, key, value

    def gradient_at(self, value: Value, gradient: Tensor) -> Tensor:
        """The gradient at a value inside, of that at the output."""
        if value is self.block:
            values = self.operands[2]
            weighed = values.tensor if isinstance(values, Value) else values
            # In second order the gradient at the map has one at the values, too.
            weighed = weighed if gradient.requires_grad else weighed.detach()
            return gradient @ weighed.to(gradient.dtype).mT
        is_second = gradient.requires_grad
        with torch.enable_grad():
            start = value.tensor if is_second else value.tensor.detach().requires_grad_()
            results: dict[Value, Tensor] = {value: start}
            for node in self.nodes[self.inside.index(value) + 1 :]:
                results[node.outputs[0]] = node.call(
                    lambda x: results[x] if x in results else x.tensor if is_second else x.tensor.detach()
                )
        (inside,) = torch.autograd.grad(results[self.output], start, gradient, create_graph=is_second)
        return inside

    # -- Some queries at a time ---------------------------------------------------------------------------------------

    def slices(self, weights: Tensor | None = None) -> Iterator[slice]:
        """Parts of the queries, from the first to the last, of which the maps fit into a cache."""
        queries = self.block.shape[-2]
        height = max(1, at_a_time(self.call.query.device) * queries // self.block.shape.numel())
        # One look for all parts: each would wait for the device.
        counts = [True] * queries if weights is None else (weights != 0).movedim(-2, 0).flatten(1).any(1).tolist()
        for start in range(0, queries, height):
            if any(counts[start : start + height]):
                yield slice(start, min(start + height, queries))

    def probabilities(self, rows: slice, dtype: torch.dtype) -> Tensor:
        """The map of some queries, `[..., rows, keys]`."""
        return self._made(rows, dtype)[self.block]

    def weighted_gradient(self, gradient: Tensor, rows: slice, weights: Tensor) -> Tensor:
        """The gradient at the map of some queries times weights: that at the output, o = p v, times v^T."""
        of_map = gradient[..., rows, :].to(weights.dtype) @ _numbers(self.operands[2], weights.dtype).mT
        return of_map.mul_(weights)

    def of_queries(self, rows: slice, dtype: torch.dtype) -> "QueryRows":
        """The operations on some queries alone, with their results, in the given precision."""
        query, key, value = self.operands
        results = self._made(rows, dtype)
        results[self.output] = _numbers(self.output, dtype)[..., rows, :]
        results[key] = _numbers(key, dtype)
        results[value] = _numbers(value, dtype)
        parts = {original: Value(tensor, depends=True) for original, tensor in results.items()}
        # Apart from the others: a model may have one tensor for queries and keys.
        of_query = Value(_numbers(query, dtype)[..., rows, :], depends=True)
        nodes = []
        for node in self.nodes:
            args = map_nested(self._arguments(node, rows, dtype), Value, lambda x: parts.get(x, of_query))
            args = (of_query, *args[1:]) if node is self.nodes[0] else args
            inputs = tuple(dict.fromkeys(x for x in args if isinstance(x, Value)))
            nodes.append(replace(node, args=args, inputs=inputs, outputs=(parts[node.outputs[0]],), constants=()))
        return QueryRows(tuple(nodes), of_query, parts)

    def _made(self, rows: slice, dtype: torch.dtype) -> dict[Value, Tensor]:
        """What all operations but the last make of some queries."""
        scaling, *others = self.nodes[:-1]
        query, scale = scaling.args
        with torch.no_grad():
            results = {scaling.outputs[0]: _numbers(query, dtype)[..., rows, :] * scale}
            for node in others:
                args = self._arguments(node, rows, dtype)
                numbers = map_nested(args, Value, lambda x: results[x] if x in results else _numbers(x, dtype))
                results[node.outputs[0]] = node.function(*numbers)
        return results

    def _arguments(self, node: Node, rows: slice, dtype: torch.dtype) -> tuple[Any, ...]:
        """The arguments of one of the operations; of a mask that has a row for each query, the rows of these."""
        if node.name != "add":
            return node.args
        scores, mask = node.args
        return scores, (mask[..., rows, :] if mask.ndim > 1 and mask.shape[-2] > 1 else mask).to(dtype)


class QueryRows(NamedTuple):
    """The operations of an attention on some of its queries."""

    nodes: tuple[Node, ...]
    query: Value
    parts: dict[Value, Value]


def _numbers(operand: Any, dtype: torch.dtype) -> Tensor:
    tensor: Tensor = operand.tensor if isinstance(operand, Value) else operand
    return tensor.detach().to(dtype)


class Kernels:
    """The fused attention of a tape.

    Args:
        twice: Whether gradients are to be differentiated. Then attention of every length is made again in parts: what a
            graph of its matrices keeps is more than that of the rest of a block.

    Attributes:
        attentions: Every call that stayed fused, in order.
        kept: The memory that kernels keep for their gradient, by its address.
        twice: See above.
    """

    def __init__(self, twice: bool = False) -> None:
        self.twice = twice
        # As it is now: a backward pass that runs a checkpointed block again decides as the forward pass did.
        self._largest_written_out = 0 if twice else LARGEST_WRITTEN_OUT
        self.attentions: list[KernelAttention] = []
        self.kept: set[int] = set()
        self._summand: tuple[TensorWeakRef, int, torch.dtype, Tensor | None] | None = None
        self._causal: Tensor | None = None

    def holding(self, value: Value) -> KernelAttention | None:
        """The attention of which a value is inside, or None."""
        return next((attention for attention in self.attentions if value in attention.inside), None)

    def of_map(self, block: Value) -> KernelAttention | None:
        """The attention of which a value is the map, or None."""
        return next((attention for attention in self.attentions if attention.block is block), None)

    def keep(self, tensors: tuple[Tensor, ...]) -> None:
        """Note memory that must not be overwritten before the backward pass."""
        self.kept.update(tensor.untyped_storage()._cdata for tensor in tensors)

    def _of_causal(self, query: Tensor, key: Tensor) -> Tensor:
        """What the mask of a decoder adds to the scores; one for all layers of one size."""
        summand = self._causal
        shape = (query.shape[-2], key.shape[-2])
        if summand is None or (summand.shape, summand.dtype, summand.device) != (shape, query.dtype, query.device):
            lowest = torch.finfo(query.dtype).min
            summand = torch.full(shape, lowest, dtype=query.dtype, device=query.device).triu_(1)
            self._causal = summand
        return summand

    def _of_mask(self, mask: Tensor, dtype: torch.dtype) -> Tensor | None:
        """What a mask adds to the scores, 0 or the lowest number; None if it does more than that."""
        if self._summand is not None:
            reference, version, precision, summand = self._summand
            if reference() is mask and version == version_of(mask) and precision == dtype:
                return summand
        summand = _blocking(mask, dtype)
        self._summand = (TensorWeakRef(mask), version_of(mask), dtype, summand)
        return summand

    def call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> KernelCall | None:
        """The call, if it may stay fused; None if it is to be written out.

        It may where no matrix of it has an influence of its own: no dropout, and no mask that adds anything but the
        lowest number where it blocks, or blocks all keys of a query. It must have a graph. What is decided depends on
        the arguments alone, so that a checkpointed block that runs again in the backward pass decides the same.
        """
        tensors = (query, key, value)
        if not torch.is_grad_enabled() or dropout_p > 0 or torch.is_autocast_enabled(query.device.type):
            return None
        if any(x.is_nested or x.layout is not torch.strided or not x.requires_grad for x in tensors):
            return None
        if query.shape[-2] * key.shape[-2] <= self._largest_written_out or len({x.dtype for x in tensors}) > 1:
            return None
        if attn_mask is not None and (is_causal or attn_mask.requires_grad):
            return None
        if self.twice and not _is_served_twice(*tensors):
            return None
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        mask = None if attn_mask is None else _compact(attn_mask)
        if not _has_kernel(KernelCall(query, key, value, mask, is_causal, scale)):
            return None
        summand = self._of_causal(query, key) if is_causal else None
        if attn_mask is not None:
            summand = self._of_mask(attn_mask, query.dtype)
            if summand is None:
                return None
        return KernelCall(query, key, value, mask, is_causal, scale, summand, self.twice)


def at_a_time(device: torch.device) -> int:
    """Return how many entries fit into a cache."""
    if device.type != "cuda":
        return ENTRIES_AT_A_TIME
    return max(ENTRIES_AT_A_TIME, torch.cuda.get_device_properties(device).L2_cache_size // 4)  # of float32


def _is_served_twice(*tensors: Tensor) -> bool:
    """Whether attention with a second derivative serves the call: samples, heads and tokens of torch's own numbers."""
    return all(type(x) is Tensor and x.ndim == 4 and x.dtype in (torch.float32, torch.float64) for x in tensors)


def _has_kernel(call: KernelCall) -> bool:
    """Whether torch has a fused kernel for the call, of which the memory is linear in the tokens."""
    if call.query.shape[:-2] != call.key.shape[:-2]:
        return False
    arguments = (call.query, call.key, call.value, call.mask, 0.0, call.is_causal)
    return bool(torch._fused_sdp_choice(*arguments, scale=call.scale) != _WRITTEN_OUT)


def _compact(mask: Tensor) -> Tensor:
    """A mask without the copies of its entries along axes that it was expanded to."""
    return mask[tuple(slice(1) if stride == 0 else slice(None) for stride in mask.stride())]


def _blocking(mask: Tensor, dtype: torch.dtype) -> Tensor | None:
    """A mask that lets pass or blocks, as a summand; None if it does anything else, or leaves a query without keys."""
    mask = _compact(mask)
    lowest = torch.finfo(dtype).min
    blocked = ~mask if mask.dtype == torch.bool else mask <= lowest / 2
    if mask.dtype != torch.bool and not bool((blocked | (mask == 0)).all()):
        return None
    if bool(blocked.all(-1).any()):
        return None
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(blocked, lowest)


def operations(call: KernelCall, operands: tuple[Any, Any, Any], path: str) -> list[Node]:
    """The operations that the kernel stands for, of which nobody holds the results; the last has none yet."""
    query, key, value = operands
    like = call.query.detach().new_empty(())
    shape = call.query.shape
    matrix = (*shape[:-1], call.key.shape[-2])
    nodes: list[Node] = []

    def then(name: str, function: Any, args: tuple[Any, ...], size: tuple[int, ...] | torch.Size) -> Value | Tensor:
        inputs = tuple(dict.fromkeys(x for x in args if isinstance(x, Value)))
        constants = tuple((x, version_of(x)) for x in args if isinstance(x, Tensor))
        result = Value(like.expand(size), depends=bool(inputs))
        node = Node(name, function, args, {}, inputs, (result,), path, constants)
        result.release(node)
        nodes.append(node)
        return result

    scaled = then("mul", torch.mul, (query, call.scale), shape)
    turned = then("transpose", torch.transpose, (key, -2, -1), (*call.key.shape[:-2], *call.key.shape[:-3:-1]))
    scores = then("matmul", torch.matmul, (scaled, turned), matrix)
    if call.summand is not None:
        scores = then("add", torch.add, (scores, call.summand), matrix)
    probabilities = then("softmax", torch.softmax, (scores, -1), matrix)
    inputs = tuple(dict.fromkeys(x for x in (probabilities, value) if isinstance(x, Value)))
    nodes.append(Node("matmul", torch.matmul, (probabilities, value), {}, inputs, (), path))
    return nodes
