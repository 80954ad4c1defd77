"""Attention flow: how much of the pooled token's attention can reach each token, by maximum flow."""

import importlib
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import torch
from jaxtyping import Float

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.methods.attention import crosses, mean_maps
from lrptrain.relevance.registry import RelevanceMaps, method
from lrptrain.relevance.types import UnsupportedMethodError

# Capacity 1 in the solver's integers: no sum of them leaves 31 bits, and each is exact to 2e-9.
SCALE = 2**28
# Of one maximum flow, as measured with scipy 1.17 on one core (0.6 to 1.6e-7 s); two thirds are its preparation.
SECONDS_PER_EDGE = 1e-7
BYTES_PER_EDGE = 100


@method(class_specific=False, signed=False, differentiable=False, source="Abnar & Zuidema 2020")
def attention_flow(explanation: Explanation, max_seconds: float = 600.0) -> RelevanceMaps:
    """Attention flow (Abnar & Zuidema 2020): the maximum flow from the pooled token at the top to each input token.

    The edges of every block are half its attention, mean over heads, plus half the identity; where n blocks act side by
    side, all of them and the identity have a share of 1 / (n + 1); the identity has more where several of them add to
    the states by residual connections of their own. Where several tokens are pooled, their shares bound what leaves
    each of them. It takes one maximum flow per token, by scipy on the CPU, so that time grows with blocks times
    tokens^3.

    In deep models mostly the two ends bound the flow: it is then what all tokens together attend to this one in the
    first block, and at most 1.

    Args:
        explanation: The forward pass.
        max_seconds: Do not begin what would take longer.

    Raises:
        UnsupportedMethodError: If it would take longer, with the time and memory that it would need, or if scipy is
            not installed.
    """
    recording = explanation.recording
    layers = recording.attention_layers.layers()
    if crosses(layers):
        raise UnsupportedMethodError(
            "attention_flow does not know two streams of tokens, an encoder's and a decoder's; rollout and "
            "generic_attention do"
        )
    positions = torch.tensor(recording.layout.positions)
    # A text's padding stands at its own positions; what shares the sequence with it is content.
    is_content = recording.content_mask(len(positions)).cpu()
    content = (
        torch.ones(len(is_content), recording.length, dtype=torch.bool).index_copy(1, positions, is_content).numpy()
    )
    check_cost(content.sum(1).tolist(), len(layers), max_seconds)
    edges_of = [_with_identity(mean_maps(recording, layer), layer.residuals) for layer in layers]
    all_edges = torch.stack(edges_of, 1).detach().cpu().double().numpy()
    pooling = recording.pooling.detach().cpu().double().numpy()
    scores = np.zeros(pooling.shape)
    wanted = np.isin(np.arange(recording.length), recording.layout.positions)
    for row, tokens in enumerate(content):
        edges = all_edges[row][:, tokens][:, :, tokens]
        (sinks,) = wanted[tokens].nonzero()
        scores[row, tokens & wanted] = maximum_flows(edges, pooling[row, tokens], sinks.tolist())
    return RelevanceMaps(recording.layout.content(torch.as_tensor(scores).to(recording.logits)))


def _with_identity(
    maps: Sequence[Float[torch.Tensor, "batch length length"]], residuals: int
) -> Float[torch.Tensor, "batch _ _"]:
    unit = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype, device=maps[0].device)
    return (torch.stack(list(maps)).sum(0) + residuals * unit) / (len(maps) + residuals)


def check_cost(tokens: Sequence[int], blocks: int, max_seconds: float) -> None:
    """Raise if the flows of samples with so many tokens would take too long.

    Raises:
        UnsupportedMethodError: If they would, with the time and memory.
    """
    edges = [max(blocks - 2, 0) * count**2 + 3 * count for count in tokens]
    seconds = SECONDS_PER_EDGE * sum(count * size for count, size in zip(tokens, edges, strict=True))
    if seconds > max_seconds:
        raise UnsupportedMethodError(
            f"attention_flow on {max(tokens)} tokens x {blocks} blocks x {len(tokens)} samples would take about "
            f"{_duration(seconds)} and {BYTES_PER_EDGE * max(edges) / 1e9:.1f} GB; take fewer or shorter samples, "
            f"rollout, or allow it with max_seconds={seconds:.0f}"
        )


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"


def maximum_flows(
    edges: Float[np.ndarray, "blocks tokens tokens"], pooling: Float[np.ndarray, " tokens"], sinks: Sequence[int]
) -> Float[np.ndarray, " sinks"]:
    """The maximum flow from the top to each of the `sinks` at the bottom.

    The graph keeps what flow can use: of the last block the rows of the pooled tokens, of the first block the sink's
    column. Only that column differs between the sinks; it stands at the end of the arrays and is written anew.

    Args:
        edges: Capacities from 0 to 1, `[block, from, to]`, first block first; at most 1 leaves a token.
        pooling: Capacity from the source to each token at the top; their sum is 1.
        sinks: The tokens at the bottom.
    """
    graph = _scipy("scipy.sparse.csgraph")
    blocks, tokens, _ = edges.shape
    bottom, *above = np.rint(edges * SCALE).astype(np.int32)
    source = np.rint(pooling * SCALE).astype(np.int32)
    if above:
        above[-1] = above[-1] * (source > 0)[:, None]
    # Nodes from top to bottom: source, the last block's queries ... the first block's queries, sink. Rows of the matrix
    # are where an edge starts.
    layers = [source[None], *above[::-1]]
    counts = [(layer > 0).sum(1) for layer in layers]
    targets = [np.nonzero(layer)[1] + 1 + depth * tokens for depth, layer in enumerate(layers)]
    sink = 1 + blocks * tokens
    starts = np.cumsum(np.concatenate([[0], *counts, np.ones(tokens, dtype=int), [0]])).astype(np.int32)
    ends = np.concatenate([*targets, np.full(tokens, sink)]).astype(np.int32)
    capacities = np.concatenate([*(layer[layer > 0] for layer in layers), bottom[:, 0]])
    matrix = _scipy("scipy.sparse").csr_array((capacities, ends, starts), shape=(sink + 1, sink + 1))
    flows = []
    for token in sinks:
        matrix.data[-tokens:] = bottom[:, token]
        flows.append(graph.maximum_flow(matrix, 0, sink).flow_value)
    return np.array(flows, dtype=float) / SCALE


def _scipy(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnsupportedMethodError("attention_flow needs scipy: pip install scipy") from error
