from dataclasses import replace

import pytest
from examples import finding

from lrptrain.findings import OVERALL, Evidence, Scope, announce

MOVED = Evidence(0.4, (0.3, 0.5), 0.1, 0.002, 20)
SUSPECTED = finding(scope=Scope("class", "cat"))
CONFIRMED = replace(SUSPECTED, scope=OVERALL, state="confirmed", intervention=MOVED)
POSITION = replace(CONFIRMED, kind="focus_at_position", where="the four corners (4 of 36 patches)")


def test_what_is_wrong_comes_first_then_the_evidence():
    (text,) = announce([CONFIRMED])
    assert text.splitlines() == [
        "SHORTCUT confirmed, all classes: the model relies on what lies outside the",
        "  annotation.",
        "  With that changed, the prediction moves by 50 points (control: 10).",
        "  12 % of the relevance lies on the annotation (its area: 31 %).",
        "  20 samples, since epoch 0. See samples 17, 4.",
    ]


def test_what_was_not_confirmed_is_not_said_of_the_model():
    (text,) = announce([SUSPECTED])
    assert text.splitlines()[0] == "Suspected, class cat: the maps point at what lies outside the annotation."
    assert "No intervention has tested it." in text
    (text,) = announce([replace(SUSPECTED, note="too few samples to test it: 3")])
    assert "Not tested: too few samples to test it: 3." in text
    (text,) = announce([replace(CONFIRMED, state="refuted")])
    assert text.startswith("Refuted, all classes: the model does not rely on what lies outside the")


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        (
            {"kind": "focus_at_position", "where": "the four corners (4 of 36 patches)"},
            ["relies on the four", "Painted over, the", "lies there (a uniform map: 31 %)"],
        ),
        (
            {"kind": "suspicious_token", "where": "the token 'census'"},
            ["relies on the token 'census'.", "Deleted, the"],
        ),
        ({"kind": "focus_in_region", "where": "sky"}, ["relies on the region 'sky'."]),
        ({"kind": "reliance_outside_annotation"}, ["The maps do not show it: 12 % of the relevance lies on the"]),
        ({"kind": "reliance_outside_annotation", "relevance": None}, ["The maps do not show it."]),
        ({"kind": "of_an_older_run", "where": "the moon"}, ["relies on the moon."]),
    ],
)
def test_each_kind_has_its_own_words(changes, sentences):
    (text,) = announce([replace(CONFIRMED, **changes)])
    for sentence in sentences:
        assert sentence in text


def test_one_fact_is_told_once_with_its_classes():
    classes = [replace(CONFIRMED, scope=Scope("class", str(i))) for i in range(9)]
    (text,) = announce([*classes, CONFIRMED, replace(CONFIRMED, target="predicted")])
    assert text.startswith("SHORTCUT confirmed, all classes")
    assert "Also in classes 0, 1, 2, 3, 4, 5 and 3 more." in text


def test_where_the_same_is_only_suspected_is_said_with_it():
    dog, fox, group = (
        replace(SUSPECTED, scope=Scope(*name)) for name in (("class", "dog"), ("class", "fox"), ("group", "1"))
    )
    (text,) = announce([dog, CONFIRMED, replace(CONFIRMED, scope=Scope("class", "owl")), fox])
    assert "Also in class owl. Suspected in classes dog and fox." in text
    (text,) = announce([dog, CONFIRMED, group])
    assert "Suspected in class dog and group 1." in text
    assert len(announce([dog, replace(fox, state="refuted")])) == 2


def test_kinds_places_and_states_are_not_mixed_and_the_gravest_comes_first():
    milder = replace(POSITION, intervention=replace(MOVED, effect=0.2))
    words = [
        replace(POSITION, kind="suspicious_token", where=f"the token {word!r}", state="suspected") for word in "ab"
    ]
    texts = announce([*words, milder, replace(SUSPECTED, state="refuted"), CONFIRMED])
    starts = [
        text.split(" relies on ")[-1].split(" rely on ")[-1].split(" point at ")[-1].split()[:3] for text in texts
    ]
    assert [" ".join(start) for start in starts] == [
        "what lies outside", "the four corners", "the token 'a'.", "the token 'b'.", "what lies outside",
    ]  # fmt: skip


def test_a_paragraph_fits_a_terminal():
    far = replace(POSITION, where="bottom centre, " * 9, worst_samples=tuple("x" * 30 + str(i) for i in range(5)))
    for text in announce([far, replace(far, state="suspected", note="because " * 20)]):
        assert max(map(len, text.splitlines())) <= 80


def test_nothing_is_announced_of_nothing():
    assert announce([]) == []
