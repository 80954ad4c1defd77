from dataclasses import replace

import numpy as np

from lrptrain.findings import Finding
from lrptrain.findings.detectors.clusters import RelevanceCluster, relevance_clusters
from lrptrain.findings.scopes import OVERALL


def maps(where, samples=20, tokens=36, seed=0):
    values = np.random.default_rng(seed).gamma(1.0, 0.05, size=(samples, tokens))
    values[:, where] += 1
    return values / values.sum(1, keepdims=True)


def test_maps_that_look_at_three_places_are_three_clusters():
    shares = np.concatenate([maps([0], 24), maps([5], 20, seed=1), maps([34, 35], 16, seed=2)])
    found = relevance_clusters(shares)
    assert [cluster.positions for cluster in found] == [(0,), (5,), (34, 35)]
    assert [cluster.members.tolist() for cluster in found] == [
        list(range(24)), list(range(24, 44)), list(range(44, 60))
    ]  # fmt: skip
    assert min(cluster.shares.min() for cluster in found) > 0.2


def test_maps_that_share_nothing_small_are_none():
    assert relevance_clusters(np.full((40, 36), 1 / 36)) == []
    spread = np.random.default_rng(0).dirichlet(np.full(36, 5.0), 40)
    assert relevance_clusters(spread) == []


def test_few_and_undefined_maps_are_left_out():
    assert relevance_clusters(maps([3], 15)) == []
    undefined = np.concatenate([maps([3], 24), maps([30], 12), np.full((4, 36), np.nan), np.zeros((4, 36))])
    found = relevance_clusters(undefined)
    assert [cluster.members.tolist() for cluster in found] == [list(range(24)), list(range(24, 36))]


def test_what_nearly_all_images_are_read_at_tells_none_apart():
    assert relevance_clusters(maps([3], 40)) == []
    found = relevance_clusters(np.concatenate([maps([3], 30), maps([30], 10, seed=1)]))
    assert {cluster.positions for cluster in found} == {(3,), (30,)}


def test_a_place_in_the_middle_takes_more():
    detector = RelevanceCluster()
    corner = Finding("relevance_cluster", OVERALL, "predicted", None, 0.95, epoch=0, step=0, first_epoch=0)
    assert detector.least_effect_of(corner) == 0.0
    assert detector.least_effect_of(replace(corner, may_be_evidence=True)) == 0.3
