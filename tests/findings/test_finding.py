import json
import math

import pytest
from examples import ENDED, EVIDENCE, INCONCLUSIVE, OPEN, finding

from lrptrain.findings import Finding, HasFindings, reliance
from lrptrain.findings.proof import Proof

ALL = [finding(), OPEN, EVIDENCE, INCONCLUSIVE, ENDED]


def test_only_a_fault_that_the_model_relies_on_is_one():
    assert [each.is_fault for each in ALL] == [True, False, False, False, False]
    assert [each.needs_review for each in ALL] == [False, True, False, False, False]
    assert [each.standing for each in ALL] == ["shortcut", "unreviewed", "annotation", "inconclusive", "does not rely"]


class Report(HasFindings):
    findings = (INCONCLUSIVE, finding(name="the border"), OPEN)


def test_a_finding_is_had_by_its_printed_name():
    assert Report()["the colours of the image"] is OPEN
    assert Report()["the border"] is INCONCLUSIVE  # of one name, the first
    with pytest.raises(KeyError, match="no finding is named 'it'; there are 'the border', 'the colours of the image'"):
        Report()["it"]
    empty = HasFindings()
    empty.findings = []
    with pytest.raises(KeyError, match="there are none"):
        empty["it"]


def test_reliance_is_what_is_sure_of_the_largest_fault():
    assert reliance(ALL) == 0.3
    assert reliance([*ALL, finding(effect=0.5, interval=(0.1, 0.9))]) == 0.3
    assert reliance(ALL[1:]) == 0


@pytest.mark.parametrize(("verdicts", "epochs", "until"), [
    (("relies", "does not rely"), (2, 3), 2),
    (("relies", "inconclusive", "relies", "inconclusive"), (0, 1, 2, 5), 2),
    (("inconclusive", "does not rely"), (0, 1), None),
    (("does not rely", "relies"), (0, 1), None),
    (("relies", "does not rely"), (), None),
])  # fmt: skip
def test_until_when_the_model_relied_on_it(verdicts, epochs, until):
    assert finding(verdict=verdicts[-1], verdicts=verdicts, epochs=epochs).relied_until == until


CHANGES = [
    {},
    {
        "by_class": {"cat": 0.5, "dog": -0.1, "owl": 0.0},
        "also_relies_on": ("the border",),
        "excerpts": ("so",),
        "note": "so",
    },
    {"share": None, "relevance": None, "area": None, "within": "", "worst_samples": (3, "a/b")},
    {"proof": Proof("That of another", "that of the same", (), path="p.png"), "plain": {"kind": "place", "box": [1]}},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_a_finding_survives_json(changes):
    one = finding(**changes)
    told = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    again = Finding.from_dict(told)
    assert again == one
    assert (again.plain, again.proof) == (one.plain, one.proof)
    assert (told["text"], told["is_fault"]) == (str(one), True)
    assert "cue" not in told
    assert told["fix"] == again.fix == one.fix


def test_an_effect_that_is_not_known_is_null():
    told = json.loads(json.dumps(finding(effect=math.nan, interval=(math.nan, math.nan)).to_dict()))
    assert (told["effect"], told["interval"]) == (None, [None, None])
    assert math.isnan(Finding.from_dict(told).effect)


@pytest.mark.parametrize(("changes", "says"), [
    ({"verdict": "confirmed"}, "the verdict 'confirmed' is none of"),
    ({"verdicts": ["relies", "maybe"], "epochs": [0, 1]}, "the verdict 'relies' is none of"),
    ({"role": "fault"}, "the role 'fault' is none of"),
    ({"epochs": [0, 1]}, "1 verdicts are of 2 epochs"),
    ({"interval": [0.1]}, "not enough values"),
])  # fmt: skip
def test_what_is_no_finding_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        Finding.from_dict(finding().to_dict() | changes)


def test_the_cue_and_the_proof_are_not_compared():
    assert finding(cue=object(), proof=Proof("a", "b", ())) == finding()


def test_names_of_earlier_versions_say_what_they_are_now():
    with pytest.raises(AttributeError, match="it is to_review now"):
        _ = Report().reads
    with pytest.raises(AttributeError, match="it is needs_review now"):
        _ = finding().is_open
    with pytest.raises(AttributeError, match=r"has no nothing$"):
        _ = finding().nothing
