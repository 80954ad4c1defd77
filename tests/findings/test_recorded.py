"""What of a recorded finding a gate must not pass over."""

import json

import pytest
from examples import ENDED, EVIDENCE, INCONCLUSIVE, OPEN, finding

from lrptrain.findings.recorded import unreadable_part


def recorded(**changes):
    return json.loads(json.dumps(finding().to_dict())) | changes


@pytest.mark.parametrize("one", [finding(), OPEN, EVIDENCE, INCONCLUSIVE, ENDED])
def test_what_this_version_records_can_be_read(one):
    assert unreadable_part(json.loads(json.dumps(one.to_dict()))) == ""


@pytest.mark.parametrize("name", ["name", "kind", "role", "effect", "interval", "samples"])
def test_what_is_missing_is_said(name):
    values = recorded()
    del values[name]
    assert name in unreadable_part(values)


@pytest.mark.parametrize(("values", "says"), [
    (3, "a finding that is none"),
    (None, "a finding that is none"),
    ({}, "a finding without name, kind, role, verdict"),
    (recorded(verdict="RELIES"), "the verdict"),
    (recorded(verdict=None), "the verdict"),
    (recorded(verdict=["relies"]), "cannot be read"),
    (recorded(verdicts="relies"), "cannot be read"),
    (recorded(epochs=[1, 2, 3]), "3 epochs"),
    (recorded(role="fautl"), "the role 'fautl'"),
    (recorded(effect="much"), "cannot be read"),
    (recorded(effect=None), "without its effect"),
    (recorded(interval=[None, None]), "without its effect"),
    (recorded(interval=[0.5, 0.6]), "without its effect"),
    (recorded(effect=7, interval=[6, 8]), "without its effect"),
    (recorded(interval=3), "cannot be read"),
    (recorded(relevance="half"), "cannot be read"),
    (recorded(by_class=["a"]), "cannot be read"),
    (recorded(also_relies_on=[3, 4]), "cannot be read"),
    (recorded(first_epoch="0"), "cannot be read"),
    (recorded(worst_samples=3), "cannot be read"),
    (recorded(proof={"samples": 3}), "cannot be read"),
    (recorded(is_fault=False), "contradicts its verdict and role"),
    (recorded(role="unreviewed"), "contradicts its verdict and role"),
    (recorded(verdict="inconclusive", is_fault=True), "contradicts its verdict and role"),
])  # fmt: skip
def test_what_cannot_be_read_is_said(values, says):
    assert says in unreadable_part(values)
    assert len(unreadable_part(values)) < 120


def test_what_another_version_adds_is_no_harm():
    assert unreadable_part(recorded(of_another_version=[1], kind="of_another_version")) == ""
    without = recorded()
    for name in ("is_fault", "sentences", "text", "history", "verdicts", "epochs", "proof"):
        del without[name]
    assert unreadable_part(without) == ""
