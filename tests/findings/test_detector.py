"""What detectors find in maps of which we know what they show."""

import numpy as np
import pytest
import torch
from examples import finding

from lrptrain.batch import Sample
from lrptrain.batch.parts import InputPart
from lrptrain.findings import (
    OVERALL,
    Candidate,
    DetectionConfig,
    Detector,
    Evaluation,
    ExplainedSample,
    Scope,
    detect_candidates,
    register_detector,
)
from lrptrain.intervention import Region

NAMES = ["cat", "dog"]
CONFIG = DetectionConfig(NAMES, lambda ids: [f" w{i}" for i in ids])
GRID = (6, 6)
CAT = Scope("class", "cat")
DOG = Scope("class", "dog")


def scored(i, label, share=float("nan"), predicted=0, peak=None, **changes):
    values = torch.full((36,), 1.0) + 0.1 * torch.rand(36, generator=torch.Generator().manual_seed(i))
    if peak is not None:
        values[peak] = 30
    targets = ["label", "predicted"] if label >= 0 else ["predicted"]
    known = {} if np.isnan(share) else {f"{target}/energy_pointing_game": share for target in targets}
    given = {"grid": GRID, "chance": 0.4, "values": known, **changes}
    maps = dict.fromkeys(targets, values)
    return ExplainedSample(Sample(i, label, {}), predicted, np.array([0.9, 0.1]), maps, num_logits=2, **given)


def detected(sample, config=CONFIG, samples=None):
    return detect_candidates(Evaluation(sample, samples, epoch=1, step=2), config)


def reference(suspect):
    assert suspect.finding.relevance is not None
    return suspect.finding.relevance.reference


def flagged(sample, **options):
    return [(one.finding.kind, one.finding.scope, one.finding.target) for one in detected(sample, **options)]


def test_classes_are_flagged_for_the_label_and_once():
    sample = [scored(i, i % 2, 0.1 + 0.001 * i) for i in range(40)]
    kind = "focus_outside_annotation"
    assert flagged(sample) == [
        (kind, OVERALL, "label"), (kind, CAT, "label"), (kind, DOG, "label"), (kind, OVERALL, "predicted")
    ]  # fmt: skip
    rows = {one.finding.scope: one.rows.tolist() for one in detected(sample, CONFIG) if one.finding.target == "label"}
    assert rows == {OVERALL: list(range(40)), CAT: list(range(0, 40, 2)), DOG: list(range(1, 40, 2))}


class Broken(Detector):
    kind = "broken"
    title = "It gives a candidate, and then fails"
    order = 0  # before all others, which must look nevertheless

    def detect(self, evaluation, config):
        yield Candidate(finding(kind=self.kind), Region("patches", (0,)), np.arange(len(evaluation.samples)))
        raise RuntimeError("no such column")


def test_a_detector_that_fails_is_reported_and_the_others_look():
    sample = [scored(i, i % 2, 0.1 + 0.001 * i) for i in range(40)]
    others = flagged(sample)
    remove = register_detector(Broken())
    reports = []
    try:
        with pytest.raises(RuntimeError, match="no such column"):
            detected(sample)
        candidates = detect_candidates(
            Evaluation(sample), CONFIG, lambda kind, error: reports.append((kind, str(error)))
        )
    finally:
        remove()
    assert reports == [("broken", "no such column")]
    assert [(each.finding.kind, each.finding.scope, each.finding.target) for each in candidates] == others != []


def test_a_good_focus_is_flagged_only_to_be_tested():
    sample = [scored(i, i % 2, 0.8 + 0.001 * i) for i in range(40)]
    assert flagged(sample) == []
    kinds = flagged(sample, samples=[one.sample for one in sample])
    assert kinds == [("reliance_outside_annotation", scope, "label") for scope in (OVERALL, CAT, DOG)]


@pytest.mark.parametrize(("changes", "medium"), [
    ({}, "image"), ({"grid": None, "content_ids": np.arange(36)}, "text"), ({"grid": None}, ""),
])  # fmt: skip
def test_a_finding_says_what_its_samples_are(changes, medium):
    sample = [scored(i, i % 2, 0.1 + 0.001 * i, **changes) for i in range(40)]
    assert {one.finding.medium for one in detected(sample)} == {medium}


def test_samples_without_a_label_are_flagged_by_the_predicted_class():
    sample = [scored(i, -1, 0.1 + 0.001 * i, predicted=1) for i in range(20)]
    assert [found[1:] for found in flagged(sample)] == [(OVERALL, "predicted"), (DOG, "predicted")]


def test_a_named_region_is_suspected_by_its_own_area():
    values = {"label/region/object": 0.5, "label/region/watermark": 0.4}
    areas = {"object": 0.5, "watermark": 0.1}
    sample = [
        scored(i, i % 2, values={**values, "label/energy_pointing_game": 0.6 + 0.001 * i}, areas=areas)
        for i in range(20)
    ]
    terms = DetectionConfig(NAMES, CONFIG.name_tokens, region_names=("object", "watermark"))
    found = [one for one in detected(sample, terms) if one.finding.kind == "focus_in_region"]
    assert [(one.finding.scope, one.finding.where) for one in found] == [(s, "watermark") for s in (OVERALL, CAT, DOG)]
    assert found[0].region == Region("named", 1)
    assert reference(found[0]) == pytest.approx(0.1)


def test_a_corner_in_every_image_is_suspected_without_annotations():
    sample = [scored(i, i % 2, peak=35) for i in range(40)]
    (found,) = detected(sample, CONFIG)
    assert (found.finding.kind, found.finding.scope) == ("focus_at_position", OVERALL)
    assert found.finding.where == "bottom right (1 of 36 patches)"
    assert found.region == Region("patches", (35,))
    assert found.finding.part == InputPart("patches", "the image's bottom right corner", GRID, (35,))
    assert found.finding.effect == pytest.approx(30 / 66.75, rel=0.02)
    assert reference(found) == 1 / 36


def test_relevance_on_the_evidence_is_no_focus_at_a_position():
    inside = np.zeros(36, bool)
    inside[35] = True
    assert detected([scored(i, i % 2, peak=35, annotated=inside) for i in range(40)], CONFIG) == []


def test_samples_with_evidence_at_the_position_are_no_evidence_against_it():
    inside = [np.arange(36) == (35 if i < 4 else 0) for i in range(40)]
    (found,) = detected([scored(i, i % 2, peak=35, annotated=inside[i]) for i in range(40)], CONFIG)
    assert found.rows.tolist() == list(range(4, 40))


def cluster_samples(planted):
    """Half of the maps look top left, half in the middle; at both places each class has its own picture, or noise."""
    sample = []
    for i in range(48):
        image = torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(i))
        if planted:
            image[:, :4, :4] = float(i % 2)
            image[:, 12:16, 12:16] = float(i % 2)
        peak = 0 if i % 4 < 2 else 21
        one = scored(i, i % 2, predicted=i % 2, peak=peak)
        sample.append((one, Sample(i, i % 2, {"image": image})))
    return [one for one, _ in sample], [held for _, held in sample]


def test_clusters_are_suspected_where_each_class_has_its_own_picture():
    kinds = {
        planted: [
            one.region.which
            for one in detected(*_swapped(cluster_samples(planted)))
            if one.finding.kind == "relevance_cluster"
        ]
        for planted in (True, False)
    }
    assert sorted(kinds[True]) == [(0,), (21,)]
    assert kinds[False] == []


def _swapped(pair):
    return pair[0], CONFIG, pair[1]


def test_tokens_are_named():
    sample = []
    for i in range(40):
        words = np.array([-1, *np.random.default_rng(i).integers(50, 500, 10), -1])
        values = torch.ones(12)
        if i % 2:
            words[5], values[5] = 7, 20.0
        one = ExplainedSample(
            Sample(i, i % 2, {}), i % 2, np.array([0.5, 0.5]), {"predicted": values}, None, 2, float("nan"), {}
        )
        sample.append(ExplainedSample(**{**vars(one), "content_ids": words}))
    (found,) = detected(sample, CONFIG)
    assert (found.finding.kind, found.finding.scope, found.finding.where) == (
        "suspicious_token",
        DOG,
        "the token 'w7'",
    )
    assert found.region == Region("token", 7)
    assert found.rows.tolist() == list(range(1, 40, 2))
