import json
from dataclasses import replace

import pytest
from examples import finding

from lrptrain.findings import OVERALL, Evidence, Finding, Scope, fold, unfold, worst_severity
from lrptrain.findings.facts import fold_places
from lrptrain.intervention import Region

MOVED = Evidence(0.4, (0.3, 0.5), 0.1, 0.002, 20)
OUTSIDE = finding(scope=OVERALL, state="confirmed", intervention=MOVED)
CORNERS = replace(OUTSIDE, kind="focus_at_position", where="the four corners (4 of 36 patches)")
CLUSTER = replace(OUTSIDE, kind="relevance_cluster", where="the four corners (4 of 36 patches) of 9 images")
REGIONS = {
    "focus_outside_annotation": Region("outside"),
    "focus_at_position": Region("patches", (0, 5, 30, 35)),
    "relevance_cluster": Region("patches", (0, 5, 7)),
}


def of_class(name, **changes):
    return replace(OUTSIDE, scope=Scope("class", name), **changes)


def region_of(one):
    return REGIONS[one.kind]


def test_thirteen_findings_of_one_tag_are_one():
    reliance = [of_class(str(i), kind="reliance_outside_annotation") for i in range(10)]
    facts = fold_places(fold([OUTSIDE, *reliance, CORNERS, CLUSTER]), region_of, 0.05)
    assert [each.kind for each in facts] == ["focus_at_position"]
    assert len(facts[0].also) == 12
    assert sorted(map(str, unfold(facts))) == sorted(map(str, [OUTSIDE, *reliance, CORNERS, CLUSTER]))


def test_what_goes_further_than_the_place_is_a_fact_of_its_own():
    # The corners move it by 0.4: that is 0.8 of 0.5, and 0.4 with the least effect is 0.45.
    for effect, least, facts in ((0.49, 0.05, 1), (0.51, 0.05, 2), (0.51, 0.12, 1), (0.53, 0.12, 2)):
        further = replace(OUTSIDE, intervention=replace(MOVED, effect=effect))
        assert len(fold_places([further, CORNERS], region_of, least)) == facts
    elsewhere = {**REGIONS, "relevance_cluster": Region("patches", (0, 7, 8))}
    assert len(fold_places([CORNERS, CLUSTER], lambda one: elsewhere[one.kind], 0.05)) == 2
    # Only what was confirmed on all samples accounts for anything, and is accounted for.
    for change in ({"state": "suspected"}, {"scope": Scope("class", "a")}):
        assert len(fold_places([OUTSIDE, replace(CORNERS, **change)], region_of, 0.05)) == 2
        assert len(fold_places([replace(OUTSIDE, **change), CORNERS], region_of, 0.05)) == 2


def test_the_gravest_speaks_and_places_stay_apart():
    word, other = (replace(OUTSIDE, kind="suspicious_token", where=f"the token {name!r}") for name in "ab")
    (fact, *tokens) = fold([of_class("a", state="refuted"), of_class("b"), word, other])
    assert (fact.scope.name, [each.state for each in fact.also]) == ("b", ["refuted"])
    assert tokens == [word, other]
    assert fold(fold([OUTSIDE, of_class("a")])) == fold([OUTSIDE, of_class("a")])
    (fact,) = fold([*fold([of_class("a"), of_class("b")]), OUTSIDE])
    assert [str(each.scope) for each in fact.also] == ["class a", "class b"]
    assert all(not each.also for each in fact.also)


def test_a_class_that_is_graver_counts():
    graver = of_class("a", intervention=replace(MOVED, effect=0.7))
    (fact,) = fold([OUTSIDE, graver])
    assert fact.severity == pytest.approx(0.4)
    assert worst_severity([fact]) == pytest.approx(0.7)


def test_a_fact_survives_json_and_older_records_are_read():
    (fact,) = fold([replace(OUTSIDE, excerpts=('"so it is"',), strategy="swap"), of_class("a")])
    values = json.loads(json.dumps(fact.to_dict()))
    assert Finding.from_dict(values) == fact
    assert values["sentences"]["verdict"].startswith("SHORTCUT confirmed, all classes")
    for new in ("also", "excerpts", "strategy", "medium", "sentences"):
        del values[new]
    assert Finding.from_dict(values) == OUTSIDE


def test_a_fault_is_no_part_of_what_a_person_has_to_judge():
    middle = replace(CORNERS, may_be_evidence=True)
    assert len(fold_places([OUTSIDE, CORNERS], region_of, 0.05)) == 1
    assert len(fold_places([OUTSIDE, middle], region_of, 0.05)) == 2
    (fact,) = fold([middle, replace(of_class("a", kind="focus_at_position", where=CORNERS.where))])
    assert fact.is_fault
    assert not fact.also[0].is_fault
