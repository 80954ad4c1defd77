import json
from dataclasses import replace

import numpy as np
import pytest
from examples import finding

from lrptrain.findings import Finding, focus_findings, merge_findings

EVALUATION = {"target": "label", "epoch": 2, "step": 30}


@pytest.fixture(scope="module")
def scores():
    """Three classes of 20: the second looks elsewhere, the others where they should."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 20)
    chance = rng.uniform(0.25, 0.35, 60)
    shares = np.where(labels == 1, rng.beta(2, 18, 60), rng.beta(16, 4, 60))
    return {"shares": shares, "chance": chance, "labels": labels, "sample_ids": [f"s{i}" for i in range(60)]}


def found(scores, names=("cat", "dog", "owl"), **options):
    return focus_findings(**scores, class_names=names, **{**EVALUATION, **options})


def test_the_class_that_looks_elsewhere_is_found_alone(scores):
    (finding,) = found(scores)
    member = scores["labels"] == 1
    shares, ids = scores["shares"][member], np.array(scores["sample_ids"])[member]
    assert (finding.kind, finding.scope, finding.target) == ("focus_outside_annotation", "dog", "label")
    assert finding.effect == pytest.approx(shares.mean())
    assert finding.interval[0] < finding.effect < finding.interval[1] < finding.chance
    assert finding.chance == finding.bound == pytest.approx(scores["chance"][member].mean())
    assert finding.samples == 20
    assert finding.worst_samples == tuple(ids[np.argsort(shares)[:5]])
    assert finding.p_value == pytest.approx(4 / 10_000, rel=0.01)  # the least the test can say, times four scopes
    assert (finding.epoch, finding.step, finding.first_epoch, finding.state) == (2, 30, 2, "suspected")


def test_a_number_as_the_bound_is_what_is_demanded(scores):
    findings = found(scores, bound=0.9)
    assert [finding.scope for finding in findings] == ["overall", "cat", "dog", "owl"]
    assert {finding.bound for finding in findings} == {0.9}
    assert [finding.scope for finding in found(scores, bound=0.5)] == ["dog"]
    assert found(scores, bound=0.01) == []


def test_chance_is_compared_sample_by_sample(scores):
    # Each share lies just below its own chance, which varies far more than the difference.
    chance = np.linspace(0.05, 0.95, 60)
    paired = {**scores, "shares": chance - 0.02, "chance": chance, "labels": np.arange(60) % 3}
    assert [finding.scope for finding in found(paired)] == ["overall", "cat", "dog", "owl"]
    assert found(paired, bound=0.5) == []


def test_the_interval_must_lie_below_the_bound_too(scores):
    # 1.8 standard errors below: enough for the one-sided test of a single scope, not for the two-sided interval.
    noise = np.random.default_rng(5).normal(size=60)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    near = {**scores, "shares": 0.5 + 0.1 * (noise - 1.8 / 60**0.5)}
    assert found(near, bound=0.5, min_samples=60) == []
    (finding,) = found(near, bound=0.5, min_samples=60, confidence=0.9)
    assert 0.025 < finding.p_value < 0.05
    assert finding.interval[1] < 0.5


def test_uniform_maps_are_seldom_flagged():
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(25):
        chance = rng.uniform(0.1, 0.4, 80)
        scores = {"shares": rng.beta(8 * chance, 8 * (1 - chance)), "chance": chance, "labels": np.arange(80) % 10}
        alarms += bool(found({**scores, "sample_ids": range(80)}, names="0123456789"))
    # Intervals without the correction raise an alarm in more than half of these.
    assert alarms <= 6


def test_samples_without_an_annotation_are_left_out(scores):
    extra = {
        "shares": np.append(scores["shares"], [np.nan, 0.0]),
        "chance": np.append(scores["chance"], [0.3, np.nan]),
        "labels": np.append(scores["labels"], [1, 1]),
        "sample_ids": [*scores["sample_ids"], "x", "y"],
    }
    assert found(extra) == found(scores)


def test_few_samples_are_not_tested(scores):
    assert found(scores, min_samples=21) == []
    empty = {"shares": np.array([]), "chance": np.array([]), "labels": np.array([], int), "sample_ids": []}
    assert found(empty) == []


@pytest.mark.parametrize("bound", [0.0, 1.0, 1.5, "area"])
def test_an_impossible_bound_is_refused(scores, bound):
    with pytest.raises(ValueError, match="bound must be"):
        found(scores, bound=bound)


def test_unequal_lengths_and_unknown_labels_are_refused(scores):
    with pytest.raises(ValueError, match="differ in length: 60, 60, 60, 2"):
        found({**scores, "sample_ids": ["a", "b"]})
    with pytest.raises(ValueError, match="name one of 2 classes"):
        found(scores, names=("cat", "dog"))
    with pytest.raises(ValueError, match="labels from -1"):
        found({**scores, "labels": scores["labels"] - 1})


def test_a_finding_survives_json(scores):
    ids = list(np.arange(60))  # numpy's integers, which JSON does not know
    (finding,) = found({**scores, "sample_ids": ids})
    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict()))) == finding


FINDING = finding(scope="3", worst_samples=(17, 4, 99), epoch=5, step=60, first_epoch=2)


def test_a_finding_prints_as_one_line():
    assert str(FINDING) == (
        "! class 3: 12 % of the relevance lies on the annotation (95 % interval 9-15 %; its area is 31 %; "
        "bound 50 %): the model looks elsewhere (target label). n = 24, p = 0.001, since epoch 2. Worst: 17, 4, 99"
    )


def test_small_shares_and_the_bound_of_chance_print_too(scores):
    line = str(replace(FINDING, scope="overall", bound=0.31, interval=(0.004, 0.15)))
    assert line.startswith("! overall: 12 % ")
    assert "(95 % interval 0.4-15 %; its area is 31 %, sample by sample the bound)" in line


def test_merging_carries_over_since_when():
    def at(scope, epoch, target="label"):
        return replace(FINDING, scope=scope, epoch=epoch, first_epoch=epoch, target=target)

    first, new = merge_findings([], [at("overall", 0), at("a", 0)])
    assert new == first
    second, new = merge_findings(first, [at("overall", 1), at("b", 1), at("overall", 1, target="predicted")])
    assert [finding.first_epoch for finding in second] == [0, 1, 1]
    assert new == second[1:]
    third, new = merge_findings(second, [at("overall", 2), at("a", 2)])
    assert [(finding.epoch, finding.first_epoch) for finding in third] == [(2, 0), (2, 2)]
    assert [finding.scope for finding in new] == ["a"]  # gone for an epoch: new again
