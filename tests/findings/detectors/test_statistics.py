"""Reliance on colour and contrast: who is tested, what is said, and what becomes of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.findings import DetectionConfig, Effect, Evaluation, ExplainedSample, Scope, announce, worst_severity
from lrptrain.findings.detector import get_detector
from lrptrain.findings.detectors.statistics import RelianceOnStatistics
from lrptrain.findings.detectors.unlocated import MOST_JUDGED, evenly, judged_rows
from lrptrain.intervention import Region
from lrptrain.monitor.gate import gravest_forbidden
from lrptrain.monitor.record_builder import RecordBuilder, untested_lines

CONFIG = DetectionConfig(["cat", "dog"], lambda ids: [str(i) for i in ids])


def evaluation(shapes=((3, 8, 8),) * 20):
    inputs = [Sample(f"s{i}", i % 2, {"image": torch.zeros(shape)}) for i, shape in enumerate(shapes)]
    explained = [
        ExplainedSample(
            replace(each, tensors={}), each.label, np.array([0.9, 0.1]), {"label": torch.ones(4)}, (2, 2), 2, np.nan, {}
        )
        for each in inputs
    ]
    return Evaluation(explained, inputs, epoch=3, step=30)


def candidates(given):
    return list(RelianceOnStatistics().detect(given, CONFIG))


def test_all_of_a_few_images_are_tested_half_of_more_and_a_few_of_many():
    (one,) = candidates(evaluation())
    assert one.region == Region("statistics")
    assert one.rows.tolist() == list(range(20))
    assert one.finding.relevance is None
    assert one.finding.where == "colour and contrast"
    many = judged_rows(1000)
    assert len(set(many.tolist())) == len(many) == MOST_JUDGED
    assert (many[0], many[-1]) == (0, 998)
    assert judged_rows(63).tolist() == evenly(63, MOST_JUDGED).tolist()
    assert judged_rows(64).tolist() == list(range(0, 64, 2))
    assert candidates(evaluation([(1, 8, 8)] * 6))[0].finding.where == "brightness and contrast"


def test_images_that_differ_in_shape_and_runs_without_an_intervention_are_not_tested():
    assert candidates(evaluation([(3, 8, 8), (3, 8, 9)] * 5)) == []
    assert candidates(replace(evaluation(), inputs=None)) == []
    texts = replace(evaluation(), inputs=[Sample(i, 0, {"input_ids": torch.ones(4)}) for i in range(20)])
    assert candidates(texts) == []
    series = [replace(each, grid=None) for each in evaluation().samples]  # an "image" that is a table or a series
    assert candidates(replace(evaluation(), samples=series)) == []


def record(change, control=0.0, note=""):
    given = evaluation()
    tested = candidates(given)
    falls = change + np.linspace(0, 0.09, 20)
    effects = [note or Effect(falls, np.full(20, control), "statistics")]
    return RecordBuilder(class_names=["cat", "dog"]).build(given, [], tested, effects), tested, effects


def test_a_large_effect_is_confirmed_for_a_person_to_judge():
    built, _, _ = record(0.7, 0.1)
    (fact,) = built.findings
    assert (fact.kind, fact.state, fact.strategy) == ("reliance_on_statistics", "confirmed", "statistics")
    assert fact.effect == pytest.approx(0.745 - 0.1)
    assert fact.worst_samples == ("s19", "s18", "s17", "s16", "s15")  # those that fall furthest
    (text,) = announce([fact])
    words = " ".join(text.split())
    assert words.startswith("Confirmed, for you to judge, all classes: the model relies on colour and contrast. Given")
    moved = (
        "Given another class's colour and contrast, the answer's probability falls by 74 points (the same class's: 10)"
    )
    assert moved in words
    assert 'Mend: if wrong, guidance by "swap", swap="statistics"' in words
    assert "no map can show it" in str(fact)
    assert built.scalars["relevance/statistics_reliance"] == pytest.approx(0.745)
    assert built.scalars["relevance/statistics_reliance_control"] == pytest.approx(0.1)


def test_no_gate_fails_on_what_a_person_has_to_judge():
    facts = record(0.7)[0].findings
    assert facts[0].effect > 0.7
    assert facts[0].severity == worst_severity(facts) == 0
    fault = replace(facts[0], kind="focus_at_position", intervention=replace(facts[0].intervention, effect=0.4))
    assert announce([*facts, fault])[0].startswith("SHORTCUT")  # what is a fault for sure comes first
    assert worst_severity([replace(facts[0], kind="focus_at_position")]) > 0.7
    assert gravest_forbidden(facts, "confirmed", 1) is None
    assert gravest_forbidden([replace(facts[0], kind="focus_at_position")], "confirmed", 1) is not None


def test_what_clean_models_do_is_no_finding_but_is_logged():
    built, _, _ = record(0.2)  # 0.13 in clean models that use colour rightly; the cut is at 0.4
    assert built.findings == []
    assert built.scalars["relevance/statistics_reliance"] == pytest.approx(0.245)
    assert get_detector("reliance_on_statistics").least_effect == 0.4


def test_a_control_that_moves_as_far_is_no_finding():
    assert record(0.7, 0.6)[0].findings == []


def test_that_it_could_not_be_tested_is_said():
    built, tested, effects = record(0.0, note="one class for all")
    assert built.findings == []
    assert "relevance/statistics_reliance" not in built.scalars
    assert untested_lines(tested, effects) == [
        "not tested whether the prediction relies on colour and contrast: one class for all"
    ]
    assert untested_lines(tested, []) == []


def test_what_was_not_tested_for_the_same_reason_is_one_line():
    _, tested, _ = record(0.0, note="one class for all")
    finding = tested[0].finding
    detail = tested[0]._replace(finding=replace(finding, title="The prediction relies on noise"))
    of_class = tested[0]._replace(finding=replace(finding, scope=Scope("class", "cat")))
    suspected = tested[0]._replace(finding=replace(finding, kind="focus_at_position"))
    candidates = [tested[0], detail, of_class, detail, suspected]
    assert untested_lines(candidates, ["one class for all"] * 3 + ["out of memory", "one class for all"]) == [
        "not tested whether the prediction relies on colour and contrast, or whether the prediction relies on "
        "noise: one class for all",
        "not tested whether the prediction relies on noise: out of memory",
    ]
