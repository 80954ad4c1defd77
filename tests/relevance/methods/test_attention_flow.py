"""Attention flow: hand-made graphs, a linear program, networkx, and the refusal of what would take too long."""

import networkx
import numpy as np
import pytest
from model_zoo import KINDS
from scipy.optimize import linprog

import lrptrain
from lrptrain.relevance.methods.attention_flow import check_cost, maximum_flows


def random_edges(blocks: int, tokens: int, sharpness: float = 2.0) -> np.ndarray:
    attention = np.exp(sharpness * np.random.default_rng(blocks).standard_normal((blocks, tokens, tokens)))
    return 0.5 * attention / attention.sum(-1, keepdims=True) + 0.5 * np.eye(tokens)


def arcs(edges: np.ndarray, pooling: np.ndarray) -> list[tuple]:
    blocks, tokens, _ = edges.shape
    inner = [((b + 1, i), (b, j), edges[b, i, j]) for b in range(blocks) for i in range(tokens) for j in range(tokens)]
    return [("source", (blocks, i), pooling[i]) for i in range(tokens)] + inner


def by_linear_program(edges: np.ndarray, pooling: np.ndarray, sink: int) -> float:
    """Maximise what arrives, subject to capacities and to nothing getting lost on the way."""
    listed = arcs(edges, pooling)
    nodes = {node for start, end, _ in listed for node in (start, end)} - {"source", (0, sink)}
    rows = {node: i for i, node in enumerate(nodes)}
    conserved, gain = np.zeros((len(nodes), len(listed))), np.zeros(len(listed))
    for column, (start, end, _) in enumerate(listed):
        for node, sign in ((start, -1), (end, 1)):
            if node in rows:
                conserved[rows[node], column] = sign
        gain[column] = -1.0 * (end == (0, sink))
    limits = [(0, capacity) for *_, capacity in listed]
    return -linprog(gain, A_eq=conserved, b_eq=np.zeros(len(nodes)), bounds=limits).fun


POOLINGS = {"one token": np.eye(5)[0], "mean": np.full(5, 0.2), "two": np.array([0.5, 0, 0, 0.5, 0])}


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_flows_are_those_of_a_linear_program_and_of_networkx(blocks, pooling):
    edges, weights = random_edges(blocks, 5), POOLINGS[pooling]
    found = maximum_flows(edges, weights, range(5))
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from(arcs(edges, weights), weight="capacity")
    for sink in range(5):
        assert abs(found[sink] - by_linear_program(edges, weights, sink)) < 1e-7
        assert abs(found[sink] - networkx.maximum_flow_value(graph, "source", (0, sink))) < 1e-7


def test_hand_made_graphs():
    # One block: the edge itself. Identity attention: all flow stays where it is.
    assert np.allclose(maximum_flows(random_edges(1, 5), POOLINGS["one token"], range(5)), random_edges(1, 5)[0, 0])
    assert np.allclose(maximum_flows(np.stack([np.eye(5)] * 3), POOLINGS["one token"], range(5)), np.eye(5)[0])
    # Two blocks of two tokens, every path by hand: 0 -> 0 -> 1 takes min(.6, .3), 0 -> 1 -> 1 takes min(.4, .9).
    edges = np.array([[[0.7, 0.3], [0.1, 0.9]], [[0.6, 0.4], [0.2, 0.8]]])
    assert np.allclose(maximum_flows(edges, np.array([1.0, 0.0]), [0, 1]), [0.6 + 0.1, 0.3 + 0.4])


def test_in_many_blocks_the_two_ends_bound_the_flow():
    edges = random_edges(12, 8, sharpness=0.5)
    found = maximum_flows(edges, np.eye(8)[0], range(8))
    assert np.allclose(found, np.minimum(1, edges[0].sum(0)))


@pytest.mark.parametrize("name", ["vit", "vit_mean", "vit_registers", "bert"])
def test_a_model_s_map_is_the_flow_on_its_own_attention(name):
    recorded = lrptrain.record(KINDS[name].build(True), KINDS[name].inputs())
    recording, found = recorded, recorded.attribute(1, "attention_flow").scores
    for sample, length in enumerate([10, 7, 4] if name == "bert" else [recording.length] * 3):
        attention = np.stack([block[sample].mean(0).detach().numpy() for block in recording.attention])
        edges = 0.5 * attention + 0.5 * np.eye(recording.length)
        pooling = recording.pooling[sample].detach().numpy()
        for score, position in list(zip(found[sample], recording.layout.positions, strict=True))[:length:5]:
            assert abs(score.item() - by_linear_program(edges, pooling, position)) < 1e-6


def test_what_would_take_too_long_is_refused_with_its_cost():
    check_cost([197] * 8, 12, 600)
    with pytest.raises(
        lrptrain.UnsupportedMethodError, match=r"4096 tokens x 12 blocks x 2 samples .* hours and .* GB"
    ):
        check_cost([4096, 3000], 12, 600)
    with pytest.raises(lrptrain.UnsupportedMethodError, match="max_seconds"):
        lrptrain.attribute(KINDS["vit"].build(True), KINDS["vit"].inputs(), 1, "attention_flow", max_seconds=1e-9)
