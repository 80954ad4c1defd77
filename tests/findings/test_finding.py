import json
from dataclasses import replace

import numpy as np
import pytest
from examples import finding

from lrptrain.batch.parts import InputPart, MarkPicture
from lrptrain.findings import OVERALL, Evidence, Finding, Scope, worst_severity
from lrptrain.findings.detectors.focus import focus_findings

CLASS = finding(scope=Scope("class", "cat"))
MOVED = Evidence(0.4, (0.3, 0.5), 0.1, 0.002, 20)
CONFIRMED = replace(CLASS, state="confirmed", intervention=MOVED)


def test_the_strongest_evidence_speaks():
    assert (CLASS.effect, CLASS.interval, CLASS.p_value, CLASS.samples) == (0.12, (0.09, 0.15), 0.001, 24)
    assert (CONFIRMED.effect, CONFIRMED.interval, CONFIRMED.p_value, CONFIRMED.samples) == (0.4, (0.3, 0.5), 0.002, 20)


def test_only_what_is_confirmed_is_severe():
    refuted = replace(CONFIRMED, state="refuted")
    assert [one.severity for one in (CLASS, CONFIRMED, refuted)] == [0, 0.4, 0]
    assert worst_severity([CLASS, CONFIRMED, refuted]) == 0.4
    assert worst_severity([]) == 0


def test_what_a_person_has_judged_to_be_a_fault_is_one():
    to_judge = replace(CONFIRMED, may_be_evidence=True)
    assert not to_judge.is_fault
    assert to_judge.as_fault().is_fault
    assert (to_judge.severity, to_judge.as_fault().severity) == (0, 0.4)
    assert Finding.from_dict(json.loads(json.dumps(to_judge.as_fault().to_dict()))).is_fault


def test_the_trend_is_the_change_per_evaluation():
    assert CLASS.trend == 0
    assert replace(CLASS, history=(0.1,)).trend == 0
    assert replace(CLASS, history=(0.1, 0.5, 0.3)).trend == pytest.approx(0.1)


PARTS = [
    InputPart("words", "the token 'so'", words=((7, 8), (9,))),
    InputPart("mark", "a mark", mark=MarkPicture((0.5,), (0.25,), 2, 1, 2, (-1, -1, 5, 5), (16, 24))),
]


@pytest.mark.parametrize(
    "one",
    [
        CLASS,
        CONFIRMED,
        replace(CONFIRMED, relevance=None, note="so", history=(0.1, 0.2)),
        *[replace(CONFIRMED, part=part) for part in PARTS],
    ],
)
def test_a_finding_survives_json(one):
    told = json.loads(json.dumps(one.to_dict()))
    assert Finding.from_dict(told) == one
    assert told["severity"] == one.severity
    assert told["text"] == str(one)


def test_a_finding_prints_as_one_line():
    assert str(finding(scope=Scope("class", "3"), worst_samples=(17, 4, 99), first_epoch=2)) == (
        "? suspected, class 3: 12 % of the relevance lies on the annotation (95 % interval 9-15 %; its area is 31 %; "
        "bound 50 %; p = 0.001). n = 24, since epoch 2. Worst: 17, 4, 99"
    )
    assert str(replace(CONFIRMED, scope=OVERALL, bound=0.31)) == (
        "! confirmed, overall: 12 % of the relevance lies on the annotation (95 % interval 9-15 %; its area is 31 %; "
        "p = 0.001); changing what lies outside it moves the prediction by 50 points, the control by 10 "
        "(difference 30 to 50; p = 0.002). n = 20, since epoch 0. Worst: 17, 4"
    )
    token = replace(CONFIRMED, kind="suspicious_token", where="the token 'census'", state="refuted")
    assert str(token).startswith("- refuted, class cat: 12 % of the relevance lies on the token 'census' (95 %")
    assert "; changing this moves the prediction by" in str(token)


def test_what_was_not_tested_has_no_p_value():
    untested = replace(CLASS, relevance=replace(CLASS.relevance, p_value=float("nan")))
    assert "p =" not in str(untested)
    null = untested.to_dict()
    null["relevance"]["p_value"] = None
    assert np.isnan(Finding.from_dict(null).p_value)


def test_small_shares_print_with_a_decimal():
    small = replace(CLASS.relevance, interval=(0.004, 0.15))
    assert "(95 % interval 0.4-15 %;" in str(replace(CLASS, relevance=small))


def test_the_ids_of_numpy_are_plain():
    shares, chance, labels = np.full(20, 0.1), np.full(20, 0.5), np.zeros(20, int)
    found = focus_findings(shares, chance, labels, list(np.arange(20)), ["a"], target="label", epoch=0, step=0)
    assert found
    for one in found:
        assert json.loads(json.dumps(one.to_dict()))["worst_samples"] == [0, 1, 2, 3, 4]
