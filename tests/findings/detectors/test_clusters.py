from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Evaluation, ExplainedSample, Finding
from lrptrain.findings.content import explained_by_class, is_surely_planted
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


def read_at(patch, kind):
    """Thirty-two images of three classes, read at one patch (row, column): a coat, a nucleus or a dot lies there."""
    top, left = (4 * place for place in patch)
    rng = np.random.default_rng(5)
    explained = []
    inputs = []
    for i in range(32):
        label = i % 3
        image = 0.2 * rng.normal(size=(3, 24, 24))
        # A coat of any shade, which breeds shift a little, a nucleus much; or a dot of the class's colour.
        shade = np.linspace(-1.5, 1.5, 11)[i // 3]
        what = {"coat": 0.75 * (label - 1) + shade, "nucleus": 1.3 * (label - 1) + shade, "dot": 2.0 * (label - 1)}
        image[:, top : top + 4, left : left + 4] += what[kind]
        relevance = torch.from_numpy(0.05 * rng.random(36))
        relevance[6 * patch[0] + patch[1]] = 1
        inputs.append(Sample(i, label, {"image": torch.from_numpy(image).float()}))
        answer = np.eye(3)[label]
        explained.append(
            ExplainedSample(Sample(i, label, {}), label, answer, {"label": relevance}, (6, 6), 3, np.nan, {})
        )
    return Evaluation(explained, inputs)


@pytest.mark.parametrize(
    ("patch", "kind", "found"),
    [((3, 3), "coat", 0), ((3, 3), "nucleus", 0), ((3, 3), "dot", 1), ((0, 5), "coat", 0), ((0, 5), "nucleus", 1)],
)
def test_few_images_of_objects_at_one_place_are_no_cluster_and_a_dot_is(patch, kind, found):
    """In the middle, what differs a lot within a class may be an object; at an edge it counts."""
    given = read_at(patch, kind)
    top, left = (4 * place for place in patch)
    contents = np.stack(
        [each.tensors["image"][:, top : top + 4, left : left + 4].numpy().ravel() for each in given.inputs]
    )
    predicted = np.array([each.predicted for each in given.samples])
    assert explained_by_class(contents, predicted).share > 0.15
    assert is_surely_planted(contents, predicted) == (kind != "coat")
    config = DetectionConfig(["a", "b", "c"], lambda ids: [str(i) for i in ids])
    candidates = list(RelevanceCluster().detect(given, config))
    assert len({each.region for each in candidates}) == found
    assert all(each.region.which == (6 * patch[0] + patch[1],) for each in candidates)
