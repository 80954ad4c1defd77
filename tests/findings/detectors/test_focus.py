import numpy as np
import pytest

from lrptrain.findings.detectors.focus import focus_findings

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
    assert (finding.kind, str(finding.scope), finding.target) == ("focus_outside_annotation", "class dog", "label")
    assert finding.effect == pytest.approx(shares.mean())
    assert finding.interval[0] < finding.effect < finding.interval[1] < finding.relevance.reference
    assert finding.relevance.reference == finding.bound == pytest.approx(scores["chance"][member].mean())
    assert finding.samples == 20
    assert finding.worst_samples == tuple(ids[np.argsort(shares)[:5]])
    assert finding.p_value == pytest.approx(4 / 10_000, rel=0.01)  # the least the test can say, times four scopes
    assert (finding.epoch, finding.step, finding.first_epoch, finding.state) == (2, 30, 2, "suspected")


def test_a_number_as_the_bound_is_what_is_demanded(scores):
    findings = found(scores, bound=0.9)
    assert [str(finding.scope) for finding in findings] == ["overall", "class cat", "class dog", "class owl"]
    assert {finding.bound for finding in findings} == {0.9}
    assert [str(finding.scope) for finding in found(scores, bound=0.5)] == ["class dog"]
    assert found(scores, bound=0.01) == []


def test_chance_is_compared_sample_by_sample(scores):
    # Each share lies just below its own chance, which varies far more than the difference.
    chance = np.linspace(0.05, 0.95, 60)
    paired = {**scores, "shares": chance - 0.02, "chance": chance, "labels": np.arange(60) % 3}
    assert [str(finding.scope) for finding in found(paired)] == ["overall", "class cat", "class dog", "class owl"]
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


def test_groups_are_scopes_of_their_own(scores):
    groups = np.tile([0, 1, 1], 20)
    shares = np.where(groups == 0, 0.05, scores["shares"])
    labels = np.zeros(60, int)
    names = [str(finding.scope) for finding in found({**scores, "shares": shares, "labels": labels}, groups=groups)]
    assert names == ["group 0"] or names == ["overall", "group 0"]
    assert "group 0" not in [str(f.scope) for f in found(scores, groups=np.zeros(60, int))]  # one group is all samples


def test_a_region_is_found_where_relevance_is_above_chance(scores):
    findings = found(scores, region="watermark")
    assert [(f.kind, str(f.scope), f.where) for f in findings] == [
        ("focus_in_region", scope, "watermark") for scope in ("overall", "class cat", "class owl")
    ]
    assert findings[0].worst_samples[0] == f"s{int(np.argmax(scores['shares']))}"


def test_scopes_whose_maps_show_nothing_can_be_asked_for(scores):
    kinds = {str(finding.scope): finding.kind for finding in found(scores, with_reliance=True)}
    assert kinds == {
        "overall": "reliance_outside_annotation",
        "class cat": "reliance_outside_annotation",
        "class dog": "focus_outside_annotation",
        "class owl": "reliance_outside_annotation",
    }
