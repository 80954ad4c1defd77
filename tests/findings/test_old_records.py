"""A record of the version before: findings in four states, and other scalars."""

import json
from pathlib import Path

import pytest

from lrptrain import check
from lrptrain.findings import Finding
from lrptrain.findings.old_records import translated_scalars
from lrptrain.loggers import read_events, read_findings

RUN = Path(__file__).parents[1] / "earlier_run"
LAST = json.loads((RUN / "events.jsonl").read_text(encoding="utf-8").splitlines()[-1])
STATES = {"confirmed": "relies", "suspected": "not sure", "unconfirmed": "not sure", "refuted": "does not rely"}


def test_the_four_states_are_three_verdicts():
    assert {each["state"] for each in LAST["findings"]} == set(STATES)
    findings = read_findings(RUN)
    assert [each.verdict for each in findings] == [STATES[each["state"]] for each in LAST["findings"]]
    assert [each.role for each in findings] == ["fault", "open", "fault", "fault", "fault"]
    assert [each.name for each in findings] == [
        "what lies outside the annotation",
        "statistics (in dog)",
        "what lies outside the annotation (in dog)",
        "a corner (1 of 9 patches)",
        "the middle (in dog)",
    ]
    fault, *_, refuted = findings
    assert (fault.effect, fault.interval, fault.relevance, fault.area) == (0.6, (0.5, 0.7), 0.12, 0.31)
    assert (fault.verdicts, fault.epochs, fault.first_epoch) == (("not sure", "relies"), (2, 3), 2)
    assert (refuted.epochs, refuted.relied_until) == ((), None)
    assert all("an earlier version" in str(each) for each in findings)


def test_what_it_recorded_becomes_what_this_version_records():
    for each in read_events(RUN)[-1]["findings"]:
        assert Finding.from_dict(each).to_dict() == each


def test_its_gate_is_that_of_this_version():
    result = check(RUN)
    assert result.verdict == "not sure"  # the fault was not yet confirmed twice, and others are not sure
    assert check(RUN, fail_after=1).verdict == "failed"
    assert check(RUN, fail_after=1).reliance == 0.5


def test_its_scalars_have_the_names_of_this_version():
    first, last = (event["scalars"] for event in read_events(RUN))
    assert first == {"relevance/samples": 32.0, "relevance/reliance": 0.0, "relevance/findings": 0.0}
    assert last == {"relevance/samples": 32.0, "relevance/reliance": 0.6, "relevance/findings": 2.0}


@pytest.mark.parametrize(("before", "after"), [
    ({"relevance/reliance": 0.4, "relevance/reads": 0.5, "relevance/findings": 2}, None),  # of this version
    ({"val/relevance/mine/severity": 0.4, "val/relevance/mine/reliance": 0.1}, {"val/relevance/mine/reliance": 0.4}),
    ({"relevance/findings/confirmed": 1, "relevance/reliance/control": 0.1}, {"relevance/findings": 1}),
    ({"relevance/severity": 0, "relevance/label/region/reliance of": 1}, {"relevance/reliance": 0,
                                                                         "relevance/label/region/reliance of": 1}),
])  # fmt: skip
def test_only_scalars_of_an_earlier_version_are_renamed(before, after):
    assert translated_scalars(before) == (before if after is None else after)
